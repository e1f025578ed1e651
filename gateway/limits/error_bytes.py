"""The bytes that each sender may have kept in topic `error`, and what is cut beyond that.

Everything that a gateway process or a bridge keeps there passes `ErrorBytes`, whichever way it came
in. Nothing is left out: of what is beyond a sender's bound the record keeps the reason, the sizes
and a short beginning.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.limits.bounds import MEBIBYTE
from gateway.limits.token_buckets import TokenBuckets
from waylog.messages import Rejected, encode
from waylog.network.peer_parties import party_of

#: Bytes of one user, or of one address before anybody has signed in.
ERROR_BYTES_PER_MINUTE: Final = MEBIBYTE
#: Minutes' worth that may come at once: a phone that comes back with a backlog sends whole bodies.
_BURST_MINUTES: Final = 16
#: What all strangers together may have kept, in shares of one address.
_ALL_STRANGERS: Final = 4

#: Bytes, or characters, that are left of a message beyond the bound, and of each of its names.
BEGINNING: Final = 256
#: The header of a record that says that its raw bytes were cut, and why.
CUT: Final = "cut"
_WHY: Final = "more than this sender may have kept in topic error"
_RAW_BYTES: Final = "raw-bytes"

# No user name begins with NUL.
_USER: Final = "\0error\0user\0"
_ADDRESS: Final = "\0error\0address\0"
_STRANGERS: Final = "\0error\0strangers"


class ErrorBytes:
    """Bounds for users and addresses. `buckets` may be shared with other workers.

    Each may have `per_minute` bytes of records kept, and sixteen times as many at once.
    """

    def __init__(self, buckets: TokenBuckets, per_minute: int = ERROR_BYTES_PER_MINUTE) -> None:
        self._buckets = buckets
        self._per_minute = per_minute

    def of_user(self, user: str, rejected: Rejected) -> bytes:
        """Return the record of a user's message, cut if it is beyond what the user may have."""
        value = encode(rejected)
        return value if self._take(_USER + user, len(value)) else _cut(rejected)

    def of_stranger(self, address: str, rejected: Rejected) -> bytes:
        """Return the record of a message from an address, of somebody who has not signed in."""
        value = encode(rejected)
        own = _ADDRESS + party_of(address)
        if not self._take(own, len(value)):
            return _cut(rejected)
        if self._take(_STRANGERS, len(value), _ALL_STRANGERS):
            return value
        self._take(own, -len(value))
        return _cut(rejected)

    def _take(self, name: str, size: int, shares: int = 1) -> bool:
        per_minute = self._per_minute * shares
        return not self._buckets.take(name, per_minute, size, per_minute * _BURST_MINUTES)


def _cut(rejected: Rejected) -> bytes:
    headers = {
        name: value[:BEGINNING]
        for name, value in (rejected.headers or {}).items()
        if len(name) <= BEGINNING
    }
    headers.setdefault(_RAW_BYTES, str(len(rejected.raw)))
    headers[CUT] = _WHY
    user = None if rejected.user is None else rejected.user[:BEGINNING]
    return encode(
        msgspec.structs.replace(rejected, raw=rejected.raw[:BEGINNING], headers=headers, user=user)
    )
