"""A log with fixes of chosen days, its history, and the answers of `waylog audit`."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.consumers.running import WAYLOG, Broker
from waylog.cli import main
from waylog.history.history_reader import HistoryReader
from waylog.kafka.clients import consumer_config, ensure_topics, producer_config
from waylog.kafka.topics import ADDRESS, LOCATION
from waylog.messages import Address, Fix, encode, fix_id

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
NOW_MS = time.time_ns() // 1_000_000
#: Noon of the day before yesterday, UTC.
NOON_MS = NOW_MS // DAY_MS * DAY_MS - 2 * DAY_MS + DAY_MS // 2
DAY = time.strftime("%Y-%m-%d", time.gmtime(NOON_MS / 1000))


def make_fix(
    device: str, number: int, received: int = NOON_MS, attributes: dict[str, Any] | None = None
) -> Fix:
    """Return the fix of a second of a day."""
    moment = received + number * 1000
    lat, lon = 47.1 + number / 10_000, 9.5
    return Fix(
        id=fix_id(device, moment - 250, lat, lon),
        device=device,
        user=device.partition("/")[0],
        lat=lat,
        lon=lon,
        time=moment - 250,
        received=moment,
        attributes=attributes,
    )


class AuditedLog:
    """A log, our own broker's unless another is named, and the folder of its history."""

    def __init__(self, folder: Path, servers: str | None = None) -> None:
        self._broker = Broker(folder) if servers is None else None
        self.servers = servers or self.broker.address
        self.history = folder / "history"
        ensure_topics(self.servers)

    @property
    def broker(self) -> Broker:
        assert self._broker is not None
        return self._broker

    def close(self) -> None:
        if self._broker is not None:
            self._broker.process.stop()

    # --- what there is --------------------------------------------------------------------------

    def append(self, fixes: Iterable[Fix], topic: str = LOCATION) -> None:
        """Append fixes at the time when they were received."""
        self.append_values(
            topic, ((fix.device.encode(), encode(fix), fix.received) for fix in fixes)
        )

    def append_values(
        self,
        topic: str,
        values: Iterable[tuple[bytes | None, bytes | None, int]],
        **more: Any,
    ) -> None:
        """Append records: key, value and timestamp (ms)."""
        producer = Producer(producer_config(self.servers, "test"))
        for key, value, timestamp in values:
            producer.produce(topic, value, key, timestamp=timestamp, **more)
            producer.poll(0)
        assert producer.flush(60) == 0

    def append_addresses(self, fixes: Iterable[Fix]) -> None:
        """Append addresses of fixes, as a resolver does."""
        self.append_values(
            ADDRESS,
            (
                (
                    fix.device.encode(),
                    encode(
                        Address(
                            device=fix.device, fix_id=fix.id, time=fix.time, lat=fix.lat,
                            lon=fix.lon, display_name="x", address={}, resolved=fix.received + 20,
                        )
                    ),
                    fix.received + 20,
                )
                for fix in fixes
            ),
        )  # fmt: skip

    def commit(self, group: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets of a group in topic `location`."""
        consumer = Consumer(consumer_config(self.servers, "test", group))
        places = [TopicPartition(LOCATION, *each) for each in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def ends(self) -> dict[int, int]:
        """Return the end of each partition of topic `location`."""
        consumer = Consumer(consumer_config(self.servers, "test", "test"))
        try:
            partitions = consumer.list_topics(LOCATION, timeout=60).topics[LOCATION].partitions
            return {
                number: consumer.get_watermark_offsets(TopicPartition(LOCATION, number))[1]
                for number in partitions
            }
        finally:
            consumer.close()

    def write_history(self) -> None:
        """Write the history up to the end of the log."""
        assert main(["history", "run", "--engine", "arrow", *self._where_to_write]) == 0

    def write_history_with_spark(self) -> None:
        """Write the same in a process with a JVM."""
        subprocess.run([*WAYLOG, "history", "run", *self._where_to_write], check=True)

    @property
    def _where_to_write(self) -> tuple[str, ...]:
        return ("--once", "--out", str(self.history), "--bootstrap-servers", self.servers)

    def lose(self, fix: Fix) -> None:
        """Remove a fix from the Parquet file that has it."""
        for file in HistoryReader(str(self.history)).files():
            path = self.history / file.path
            table = pq.ParquetFile(path).read()
            kept = table.filter(pc.not_equal(table["id"], pa.scalar(fix.id)))
            if kept.num_rows < table.num_rows:
                pq.write_table(kept, path)
                return
        raise AssertionError(f"{fix.id} is in no file")

    # --- what is answered -----------------------------------------------------------------------

    def audit(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        """Return the exit status of `waylog audit`, and its objects."""
        status, text = self.printed(*words, "--json")
        return status, [json.loads(line) for line in text.splitlines()]

    def printed(self, *words: str) -> tuple[int, str]:
        """Return the exit status of `waylog audit`, and what it prints for people."""
        where = ["--bootstrap-servers", self.servers]
        if self.history.exists():
            where += ["--history", str(self.history)]
        printed = StringIO()
        with redirect_stdout(printed):
            status = main(["audit", *words, *where])
        return status, printed.getvalue()

    def device(self, device: str, *words: str) -> tuple[int, dict[str, Any]]:
        """Return the exit status and the receipt of a device for the day before yesterday."""
        status, (receipt,) = self.audit("device", device, "--day", DAY, *words)
        return status, receipt


def reader_of(receipt: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return what a receipt says of a reader."""
    found: dict[str, Any] = next(each for each in receipt["readers"] if each["name"] == name)
    return found


def counts_of(receipt: Mapping[str, Any], name: str) -> dict[str, int]:
    """Return the counts of a reader that are not zero."""
    counted = ("taken", "pending", "overdue", "missing", "refused", "unknown")
    reader = reader_of(receipt, name)
    return {each: reader[each] for each in counted if reader[each]}


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)
