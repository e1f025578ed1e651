"""The header `traceparent` that goes with every record (W3C Trace Context, level 1)."""

from __future__ import annotations

import itertools
import os
import re
from typing import Final

HEADER: Final = "traceparent"

_FORM = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class TraceSource:
    """Starts traces. Ids are a random prefix of the process and a counter: unique, and cheap."""

    def __init__(self) -> None:
        self._prefix = os.urandom(8).hex().encode()
        # The parent id must not be all zeros, so the counter starts at a random value above zero.
        self._count = itertools.count(int.from_bytes(os.urandom(6), "big") + 1)

    def start(self) -> bytes:
        """Return the `traceparent` of a new, unsampled trace."""
        number = next(self._count)
        return b"00-%b%016x-%016x-00" % (self._prefix, number, number)

    def continue_from(self, header: str | None) -> bytes:
        """Return the trace of a request, or a new one if its header is missing or malformed."""
        if header is not None and _FORM.fullmatch(header) is not None:
            return header.encode()
        return self.start()
