"""The end-to-end check: every acknowledged fix is in the log once, and its address followed.

The generator knows which ids were acknowledged (`account.py`). Afterwards an ordinary consumer
reads the log from the offsets that were stored before the first fix.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from load_tests.account import Account, DeviceAccount, fix_id
from waylog.kafka.clients import LogUnreachable, consumer_config
from waylog.kafka.topics import ADDRESS, LOCATION
from waylog.malformed import MALFORMED
from waylog.sealing.sealing import opener

#: (topic, partition) -> offset
Offsets = dict[tuple[str, int], int]

_READ_S: Final = 60.0
_EXAMPLES: Final = 10
_BATCH: Final = 5000


class Verdict(msgspec.Struct, kw_only=True):
    """The result of the comparison. `lost` and `doubled` must be 0."""

    lost: int = 0  # acknowledged but not in topic `location`
    doubled: int = 0  # ids with more than one record in `location`
    stored: int = 0  # ids of this run in `location`
    unacknowledged: int = 0  # stored, but the device does not know that and would send them again
    unknown: int = 0  # ids of this run that were not sent
    foreign: int = 0  # records of other producers
    devices: int = 0  # devices with a fix in the log
    addresses: int = 0  # devices whose newest address is that of their newest fix
    stale: int = 0  # devices whose newest address is that of an older fix
    unresolved: int = 0  # devices without any address
    waited_s: float = 0.0  # seconds until the addresses had caught up
    examples: list[str] = []  # some ids that are lost, doubled or unknown

    @property
    def passed(self) -> bool:
        """Return whether no id is lost, doubled or unknown, and all newest addresses are there."""
        return not (self.lost or self.doubled or self.unknown or self.stale or self.unresolved)


class _Stored(msgspec.Struct, gc=False):
    id: str = ""
    time: int = 0


class _Resolved(msgspec.Struct, gc=False):
    fix_id: str = ""
    device: str = ""
    time: int = 0


_stored = msgspec.json.Decoder(_Stored)
_resolved = msgspec.json.Decoder(_Resolved)


class Log:
    """A reader of topics `location` and `address` that joins no group."""

    def __init__(self, bootstrap_servers: str, *, timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s
        self._consumer = Consumer(
            consumer_config(
                bootstrap_servers,
                "waylog-verify",
                "waylog-verify",
                fetch_wait_max_ms=20,
                queued_max_messages_kbytes=64 * 1024,
            )
        )
        self._bootstrap_servers = bootstrap_servers
        self._opened = opener(bootstrap_servers)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def ends(self, topics: Iterable[str] = (LOCATION, ADDRESS)) -> Offsets:
        """Return the offset of the next record of each partition; raises LogUnreachable."""
        offsets: Offsets = {}
        try:
            for topic in topics:
                metadata = self._consumer.list_topics(topic, timeout=self._timeout_s).topics[topic]
                if metadata.error is not None:
                    raise LogUnreachable(f"topic {topic}: {metadata.error.str()}")
                for partition in metadata.partitions:
                    _, end = self._consumer.get_watermark_offsets(
                        TopicPartition(topic, partition), timeout=self._timeout_s
                    )
                    offsets[(topic, partition)] = end
        except KafkaException as error:
            raise LogUnreachable(f"{self._bootstrap_servers}: {error.args[0].str()}") from error
        return offsets

    def records(self, topic: str, starts: Offsets, ends: Offsets) -> Iterator[bytes]:
        """Yield the values of a topic from `starts` to `ends`; raises LogUnreachable."""
        wanted = {
            partition: end
            for (name, partition), end in ends.items()
            if name == topic and end > starts.get((name, partition), 0)
        }
        if not wanted:
            return
        self._consumer.assign(
            [
                TopicPartition(topic, partition, starts.get((topic, partition), 0))
                for partition in wanted
            ]
        )
        deadline = time.monotonic() + _READ_S
        while wanted:
            messages = self._consumer.consume(_BATCH, timeout=0.1)
            for message in self._opened(messages):
                if message.error() is None:
                    yield message.value() or b""
            if messages:
                deadline = time.monotonic() + _READ_S
            for position in self._consumer.position(
                [TopicPartition(topic, partition) for partition in wanted]
            ):
                # Compaction leaves gaps, so the position tells the end, not the records.
                if position.offset >= wanted[position.partition]:
                    del wanted[position.partition]
            if time.monotonic() > deadline:
                raise LogUnreachable(f"topic {topic} cannot be read to its end")
        self._consumer.unassign()


def verify(
    log: Log, account: Account, starts: Offsets, *, addresses_within_s: float = 60.0
) -> Verdict:
    """Compare the account with the log; raises LogUnreachable."""
    verdict = Verdict()
    newest = _check_locations(log, account, starts, verdict)
    verdict.devices = len(newest)
    _check_addresses(log, account.user, newest, starts, verdict, addresses_within_s)
    return verdict


def _check_locations(
    log: Log, account: Account, starts: Offsets, verdict: Verdict
) -> dict[int, tuple[int, str]]:
    """Count every id; return the newest stored fix of each device: (time, id)."""
    counts = {each.device: bytearray(each.sent) for each in account.devices}
    newest: dict[int, tuple[int, str]] = {}
    prefix = f"{account.run}-"
    length = len(prefix) + 17
    for value in log.records(LOCATION, starts, log.ends((LOCATION,))):
        try:
            record = _stored.decode(value)
        except MALFORMED:
            verdict.foreign += 1
            continue
        key = record.id
        if not key.startswith(prefix) or len(key) != length:
            verdict.foreign += 1
            continue
        device, sequence = int(key[-17:-9]), int(key[-8:])
        seen = counts.get(device)
        if seen is None or sequence >= len(seen):
            verdict.unknown += 1
            _example(verdict, key)
            continue
        seen[sequence] = min(255, seen[sequence] + 1)
        if device not in newest or record.time >= newest[device][0]:
            newest[device] = (record.time, key)
    for each in account.devices:
        _compare(account.run, each, counts[each.device], verdict)
    return newest


def _compare(run: str, device: DeviceAccount, seen: bytearray, verdict: Verdict) -> None:
    for sequence, count in enumerate(seen):
        acknowledged = device.is_acknowledged(sequence)
        if count:
            verdict.stored += 1
            verdict.unacknowledged += not acknowledged
        if acknowledged and not count:
            verdict.lost += 1
            _example(verdict, fix_id(run, device.device, sequence))
        elif count > 1:
            verdict.doubled += 1
            _example(verdict, fix_id(run, device.device, sequence))


def _check_addresses(
    log: Log,
    user: str,
    newest: dict[int, tuple[int, str]],
    starts: Offsets,
    verdict: Verdict,
    within_s: float,
) -> None:
    """Wait until each device's newest address is that of its newest fix."""
    wanted = {f"{user}/d{device:08d}": fix for device, fix in newest.items()}
    found: dict[str, tuple[int, str]] = {}
    began = time.monotonic()
    read = dict(starts)
    while True:
        ends = log.ends((ADDRESS,))
        for value in log.records(ADDRESS, read, ends):
            _take_address(value, wanted, found)
        read.update(ends)
        right = sum(found.get(device) == fix for device, fix in wanted.items())
        verdict.waited_s = round(time.monotonic() - began, 3)
        if right == len(wanted) or verdict.waited_s > within_s:
            break
        time.sleep(0.1)
    verdict.addresses = right
    verdict.unresolved = len(wanted.keys() - found.keys())
    verdict.stale = len(wanted) - right - verdict.unresolved


def _take_address(value: bytes, wanted: dict[str, Any], found: dict[str, tuple[int, str]]) -> None:
    try:
        address = _resolved.decode(value)
    except MALFORMED:
        return
    if address.device in wanted:
        before = found.get(address.device)
        if before is None or address.time >= before[0]:
            found[address.device] = (address.time, address.fix_id)


def _example(verdict: Verdict, key: str) -> None:
    if len(verdict.examples) < _EXAMPLES:
        verdict.examples.append(key)
