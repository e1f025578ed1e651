"""Records as a log reader delivers them, and a log in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from waylog.kafka.clients import AppendError, DeliveryCallback, RecordHeaders
from waylog.kafka.protocol.error_codes import ErrorCode
from waylog.messages import Address, Fix, encode

NOW = 1_761_994_812_000

Pairs = list[tuple[str, str | bytes | None]]


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
    """Return a fix with the given members and defaults for the others."""
    given: dict[str, Any] = {"id": f"{device}-{time}", "lat": 47.14, "lon": 9.52, "received": NOW}
    return Fix(device=device, user=device.partition("/")[0], time=time, **given | members)


def address(device: str = "ada/phone", time: int = NOW, **members: Any) -> Address:
    """Return an address with the given members and defaults for the others."""
    given: dict[str, Any] = {
        "fix_id": f"{device}-{time}",
        "lat": 47.14,
        "lon": 9.52,
        "display_name": "Aeulestrasse 5, Vaduz",
        "address": {"road": "Aeulestrasse"},
        "resolved": time,
    }
    return Address(device=device, time=time, **given | members)


def record(message: Fix | Address, offset: int = 0, partition: int = 0) -> StoredRecord:
    """Return a message as a record of the log."""
    return StoredRecord(message.device.encode(), encode(message), offset, partition)


class MemoryLog:
    """A log that takes appends; the test decides when they are acknowledged."""

    def __init__(self) -> None:
        self.appended: list[tuple[str, bytes | None, bytes, Pairs | None]] = []
        self.deliveries: list[DeliveryCallback] = []
        self.refuse_with: Exception | None = None

    def send(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        headers: RecordHeaders | None,
        on_delivery: DeliveryCallback,
    ) -> None:
        if self.refuse_with is not None:
            raise self.refuse_with
        pairs: Pairs | None = [("traceparent", headers)] if isinstance(headers, bytes) else headers
        self.appended.append((topic, key, value, pairs))
        self.deliveries.append(on_delivery)

    def acknowledge(self) -> None:
        """Acknowledge all appends that wait."""
        self._answer(None)

    def fail(self) -> None:
        """Fail all appends that wait, with the error of a broker that did not answer."""
        self._answer(AppendError.of(ErrorCode.MESSAGE_TIMED_OUT))

    def _answer(self, error: AppendError | None) -> None:
        deliveries, self.deliveries = self.deliveries, []
        for on_delivery in deliveries:
            assert callable(on_delivery)
            on_delivery(error, Message())


class MemoryTelemetry:
    """Keeps the records of interceptors."""

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes]] = []

    def record(self, topic: str, value: bytes) -> None:
        self.records.append((topic, value))
