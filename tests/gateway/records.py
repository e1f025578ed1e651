"""Records as a log reader hands them over, and a log in memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from waylog.kafka import Headers
from waylog.messages import Address, Fix, encode

NOW = 1_761_994_812_000


@dataclass
class StoredRecord:
    """One record of a partition."""

    key_bytes: bytes | None
    value_bytes: bytes | None
    number: int = 0
    in_partition: int = 0
    time: int = NOW

    def key(self) -> bytes | None:
        return self.key_bytes

    def value(self) -> bytes | None:
        return self.value_bytes

    def partition(self) -> int | None:
        return self.in_partition

    def offset(self) -> int | None:
        return self.number

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time


def fix(device: str = "ada/phone", time: int = NOW, **members: Any) -> Fix:
    """A fix with what matters to a test."""
    given: dict[str, Any] = {"id": f"{device}-{time}", "lat": 47.14, "lon": 9.52, "received": NOW}
    return Fix(device=device, user=device.partition("/")[0], time=time, **given | members)


def address(device: str = "ada/phone", time: int = NOW, **members: Any) -> Address:
    """An address with what matters to a test."""
    given: dict[str, Any] = {
        "fix_id": f"{device}-{time}",
        "lat": 47.14,
        "lon": 9.52,
        "display_name": "Aeulestrasse 5, Vaduz",
        "address": {"road": "Aeulestrasse"},
        "resolved": NOW,
    }
    return Address(device=device, time=time, **given | members)


def record(message: Fix | Address, offset: int = 0, partition: int = 0) -> StoredRecord:
    """A message as the log has it."""
    return StoredRecord(message.device.encode(), encode(message), offset, partition)


class MemoryLog:
    """Takes appends; the test decides when they are acknowledged."""

    def __init__(self) -> None:
        self.appended: list[tuple[str, bytes | None, bytes, Headers | None]] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.refuse_with: Exception | None = None

    def append(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[Any]:
        if self.refuse_with is not None:
            raise self.refuse_with
        self.appended.append((topic, key, value, headers))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        return future

    def acknowledge(self) -> None:
        """Everything that waits."""
        for future in self.futures:
            if not future.done():
                future.set_result(None)


class MemoryTelemetry:
    """Keeps the records of interceptors."""

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes]] = []

    def record(self, topic: str, value: bytes) -> None:
        self.records.append((topic, value))
