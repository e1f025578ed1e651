"""Runs the processor of a topology without a broker, and topologies in processes of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from consumers.streams.processor import StreamProcessor
from consumers.streams.store import Store
from consumers.streams.stream_task import PUNCTUATE_MS, StreamTask
from consumers.worker.records import OutputRecord, StateRecord
from waylog.messages import Event, Fix, decode_event, encode, fix_id

NOW = 1_700_001_000_000
BEGIN = 1_700_000_000_000


class Record:
    """A record of the log, as a processor sees it."""

    def __init__(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        offset: int = 0,
        partition: int = 0,
        headers: Any = None,
        timestamp: tuple[int, int] = (TIMESTAMP_NOT_AVAILABLE, 0),
    ) -> None:
        self._value, self._key, self._offset = value, key, offset
        self._partition, self._headers = partition, headers
        self._timestamp = timestamp

    def topic(self) -> str:
        return "location"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Any:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return self._timestamp


def make_fix(seconds: float, lat: float = 47.14, lon: float = 9.52, **more: Any) -> Fix:
    """Return a fix so many seconds after BEGIN."""
    device = more.pop("device", "ann/phone")
    time = BEGIN + round(seconds * 1000)
    members: dict[str, Any] = {"received": time, "id": fix_id(device, time, lat, lon)} | more
    return Fix(device=device, user=device.split("/")[0], lat=lat, lon=lon, time=time, **members)


def record_of(fix: Fix) -> Record:
    return Record(encode(fix), fix.device.encode())


class Driven:
    """A processor with one partition, whose changelog is kept in a list."""

    def __init__(self, processor: StreamProcessor[Any]) -> None:
        self.task: StreamTask[Any] = StreamTask(processor, "changelog")
        self.store: Store[Any] = self.task.new_state()
        self.changelog: list[StateRecord] = []
        self.outputs: list[OutputRecord] = []
        self.now_ms = NOW

    def send(self, *fixes: Fix | bytes | None) -> list[OutputRecord]:
        """Process fixes, or other values, as one batch; return what was forwarded."""
        records = [record_of(each) if isinstance(each, Fix) else Record(each) for each in fixes]
        outputs = self.task.process({0: records}, {0: self.store}, self.now_ms)
        self._take(outputs)
        return outputs

    def pass_time(self, ms: int = PUNCTUATE_MS) -> list[OutputRecord]:
        """Let the wall clock go on; return what was forwarded."""
        self.now_ms += ms
        outputs = self.task.late_results({0: self.store}, self.now_ms)
        self._take(outputs)
        return outputs

    def restart(self) -> None:
        """Throw the store away, and restore it from the changelog."""
        self.store = self.task.new_state()
        self.store.restore(self.changelog)

    def _take(self, outputs: Sequence[OutputRecord]) -> None:
        self.outputs += outputs
        self.changelog += self.task.state_changes({0: self.store}).get(0, [])


def events_of(outputs: Iterable[OutputRecord]) -> list[Event]:
    """Return the records of topic `event` among outputs."""
    return [decode_event(each.value) for each in outputs if each.topic == "event"]


def told(outputs: Iterable[OutputRecord]) -> list[tuple[str, int]]:
    """Return transition and time of events."""
    return [((each.attributes or {})["transition"], each.time) for each in events_of(outputs)]
