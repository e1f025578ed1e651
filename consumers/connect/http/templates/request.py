"""A request that carries one record or several."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from consumers.connect.data.records import SinkRecord

_KEY_BYTES: Final = 16


class Request(NamedTuple):
    """What is sent; the headers are those that depend on the records."""

    method: str
    url: str
    body: bytes = b""
    headers: Mapping[str, str] = {}


def idempotency_key(request: Request, records: Sequence[SinkRecord]) -> str:
    """Return a name of the request that is the same whenever it is repeated, in any process.

    It is a hash of where the log has the records, and of what is sent.
    """
    digest = hashlib.blake2b(digest_size=_KEY_BYTES)
    for record in records:
        digest.update(repr(record.place).encode())
    digest.update(f"\0{request.method} {request.url}\0".encode())
    digest.update(request.body)
    return digest.hexdigest()
