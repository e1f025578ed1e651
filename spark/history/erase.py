"""Erasure of devices: from the log, the history, the tables of places and MQTT state.

First, topic `erasure` gets a record for each device. All writers and readers honour it from then
on, so that data that is sent late or read again does not come back. Topics of the log with
time-based retention cannot delete single records. If their values are encrypted, destroying the
keys makes these records unreadable; the report tells until when others are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow.parquet as pq
from confluent_kafka import OFFSET_END, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from geoservice.fallback.answer_log import GEOCODED
from spark.fixes.staging import rewrite_landed
from spark.history.compaction import rewrite_without
from spark.history.manifest import ManifestWriter
from waylog.config import ConfigError
from waylog.history.erasures import append_erasures
from waylog.history.file_names import HistoryFile
from waylog.history.history_reader import (
    ERASED,
    CompactedFile,
    ErasedDevice,
    HistoryReader,
    device_runs,
    read_erased,
)
from waylog.history.storage import Storage
from waylog.kafka.clients import LogUnreachable, client_config
from waylog.kafka.librdkafka_producer import append_records
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import (
    ADDRESS,
    ERROR,
    EVENT,
    FORWARDING,
    FORWARDING_DEAD_LETTER,
    FORWARDING_PROGRESS,
    FRIENDSHIP,
    LOCATION,
    MQTT_STATE,
    PLACE,
    PLACE_EDIT,
    TRIP,
    TRIP_DAY,
    VALUE_KEY,
    segment_ms,
)
from waylog.sealing.sealing import owner_of_mqtt_topic, owner_of_record, owners_of_user
from waylog.sealing.value_encryption import owner_of
from waylog.sealing.value_keys import destroy_keys

_FOREVER: Final = -1
#: Seconds to wait for a compaction of the history that is in progress.
_PACKING_MAX_S: Final = 600.0
#: The owner of rejected messages from unknown senders: a device with a wrong password may be one.
_NOBODY: Final = ""
#: Topics whose keys contain the devices of a user, those with few records first.
_TOPICS_OF_DEVICES: Final = (
    *(VALUE_KEY, ADDRESS, PLACE, PLACE_EDIT, TRIP_DAY, TRIP, EVENT, ERROR, LOCATION),
)


class KeptUntil(msgspec.Struct):
    """A topic that cannot delete single records."""

    topic: str
    until: int | None  # ms since 1970; None: for ever, unless its retention is set
    #: Records written since then are unreadable, because their key is destroyed (ms since 1970).
    unreadable_since: int | None = None


class ErasureReport(msgspec.Struct):
    """The outcome of an erasure: what was removed and what remains."""

    devices: list[str]
    erased: int  # time of the erasure, ms since 1970
    users: list[str] = []
    history: bool = True  # whether there is a history
    rows: int = 0  # removed from the history
    files_rewritten: int = 0
    files_looked_at: int = 0
    places: int = 0
    tombstones: dict[str, int] = {}  # number by topic
    # True if the answers of the fallback geocoder were deleted, for all devices.
    answers: bool = False
    keys: int = 0  # number of destroyed keys
    keys_gone: bool = True  # whether the keys are gone from the log's segments too
    kept: list[KeptUntil] = []
    seconds: float = 0.0

    @property
    def before(self) -> dict[str, int]:
        """For each device or user the time (ms since 1970) before which its data is erased."""
        return dict.fromkeys([*self.devices, *self.users], self.erased)


def devices_in_log(servers: str, user: str) -> set[str]:
    """Return the devices of a user that occur in the log; raises LogUnreachable."""
    prefix = f"{user}/"
    found: set[str] = set()
    seen: set[bytes] = set()
    for topic in _TOPICS_OF_DEVICES:
        for message in read_topic(servers, topic):
            key = message.key()
            if key is not None and key not in seen:
                seen.add(key)
                found.add(owner_of(key))
    for message in read_topic(servers, MQTT_STATE):
        found.add(owner_of_record(MQTT_STATE, message.key()))
    return {owner for owner in found if owner.startswith(prefix)}


def mark_erased(history: str, erased: Mapping[str, int], *, rewritten: bool = False) -> None:
    """Record erased devices in the history, so that their rows are not added again.

    With `rewritten`, the existing files have been rewritten already.
    """
    storage = Storage(history)
    known = {each.device: each for each in read_erased(storage)}
    for device, before in erased.items():
        if device not in known or known[device].before <= before:
            known[device] = ErasedDevice(device, before, rewritten)
    storage.open_folder()
    storage.replace_bytes(ERASED, msgspec.json.encode(list(known.values())))


def erase_history(
    history: str,
    erased: Mapping[str, int],
    report: ErasureReport,
    advanced: Callable[[], object] = lambda: None,
) -> None:
    """Rewrite the files that have rows of some devices; the other files do not change.

    Calls `advanced` before each file.
    Waits while the history is being compacted; raises ConfigError when that takes too long.
    """
    # Recorded first, so that rows removed below cannot be added again.
    mark_erased(history, erased)
    writer = _manifest_writer(history)
    try:
        storage = writer.storage
        reader = HistoryReader(history)
        exchanged: dict[str, CompactedFile] = {}
        for file in reader.files():
            advanced()
            report.files_looked_at += 1
            if not _has(reader, file, erased):
                continue
            report.files_rewritten += 1
            if file.span is not None:
                report.rows += rewrite_landed(storage, file.path, erased)
            else:
                newer, removed = rewrite_without(storage, file, erased)
                report.rows += removed
                exchanged[file.path] = newer
        if exchanged:
            writer.exchange(exchanged)
            writer.delete_superseded()
    finally:
        writer.close()
    mark_erased(history, erased, rewritten=True)


def _manifest_writer(history: str) -> ManifestWriter:
    deadline = time.monotonic() + _PACKING_MAX_S
    while True:
        try:
            return ManifestWriter(history)
        except ConfigError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def erase_places(history: str, url: str, devices: Sequence[str]) -> int:
    """Remove the places of some devices from the tables; return the number of places removed."""
    from spark.places.job import write_places
    from spark.places.schema import FILE
    from spark.runtime.tasks import LocalEngine

    places = Storage(url)
    if not places.exists(FILE):
        return 0
    known = places.read_parquet(FILE, ["device"])["device"].to_pylist()
    write_places(LocalEngine(1), history, url, erased=devices)
    return sum(device in set(devices) for device in known)


def _has(reader: HistoryReader, file: HistoryFile, wanted: Mapping[str, int]) -> bool:
    with reader.storage.open_input(file.path) as stream:
        parquet = pq.ParquetFile(stream, read_dictionary=["device"])
        runs = device_runs(parquet)
        if runs is not None:
            return any(run.device in wanted for run in runs)
        return any(
            not wanted.keys().isdisjoint(batch["device"].dictionary.to_pylist())
            for batch in parquet.iter_batches(columns=["device"], use_threads=False)
        )


def erase_topics(servers: str, report: ErasureReport, patience_s: float = 0.0) -> None:
    """Record the erasure, write tombstones to compacted topics, and destroy all keys of the owners.

    Also puts into the report how long the other topics keep their records. Waits up to `patience_s`
    until the keys are gone from the log's segments. Raises LogUnreachable.
    """
    devices, users = set(report.devices), set(report.users)
    records: list[tuple[str, bytes, bytes | None]] = [
        (topic, device.encode(), None) for topic in (ADDRESS, PLACE) for device in report.devices
    ]
    for topic in (PLACE_EDIT, TRIP, TRIP_DAY):
        for key in _live_keys(servers, topic):
            if owner_of(key) in devices:
                records.append((topic, key, None))
    for key in _live_keys(servers, FRIENDSHIP):
        if not users.isdisjoint(key.decode("utf-8", "replace").split("\n")):
            records.append((FRIENDSHIP, key, None))
    for topic in (FORWARDING, FORWARDING_PROGRESS):
        for key in _live_keys(servers, topic):
            if owner_of(key) in users:
                records.append((topic, key, None))
    for key in _live_keys(servers, MQTT_STATE):
        if _is_mqtt_state_of(key, devices, users):
            records.append((MQTT_STATE, key, None))
    append_erasures(servers, report.before, report.erased)
    append_records(servers, records, "an erasure", client_id="waylog-erase")
    for topic, _, _ in records:
        report.tombstones[topic] = report.tombstones.get(topic, 0) + 1
    report.answers = _forget_answers(servers)
    # The owner of a device's rejected messages may be its user, or unknown.
    owners = {_NOBODY, *devices, *(device.partition("/")[0] for device in devices)}
    for user in users:
        owners.update(owners_of_user(user))
    destroyed = destroy_keys(servers, sorted(owners), patience_s)
    report.keys, report.keys_gone = destroyed.keys, destroyed.gone
    now = time.time_ns() // 1_000_000
    for topic in (LOCATION, EVENT, ERROR, FORWARDING_DEAD_LETTER):
        retention = _retention_ms(servers, topic)
        if retention is not None:
            forever = retention == _FOREVER
            until = None if forever else now + retention + segment_ms(retention)
            report.kept.append(KeptUntil(topic, until, destroyed.since_ms))


def _live_keys(servers: str, topic: str) -> list[bytes]:
    """Return the keys of a compacted topic whose newest record has a value."""
    newest: dict[bytes, bool] = {}
    for message in read_topic(servers, topic):
        newest[message.key() or b""] = message.value() is not None
    return [key for key, has_value in newest.items() if has_value]


def _is_mqtt_state_of(key: bytes, devices: set[str], users: set[str]) -> bool:
    kind, _, name = key.decode("utf-8", "replace").partition("\0")
    if kind == "session":
        # The login is `user`, or `user/device`.
        return name.partition("\0")[0].partition("/")[0] in users
    owner = owner_of_mqtt_topic(name)
    return owner in devices or owner.partition("/")[0] in users


def _forget_answers(servers: str) -> bool:
    """Delete the answers of the fallback geocoder, which do not tell whose position was requested.

    They are a cache, which fills again. Returns whether the topic exists. Raises LogUnreachable.
    """
    admin = AdminClient(client_config(servers, "waylog-erase"))
    try:
        found = admin.list_topics(GEOCODED, timeout=10.0).topics[GEOCODED]
        if found.error is not None:
            return False
        ends = [TopicPartition(GEOCODED, partition, OFFSET_END) for partition in found.partitions]
        for deleted in admin.delete_records(ends).values():
            deleted.result(timeout=30)
    except KafkaException as error:
        raise LogUnreachable(f"topic {GEOCODED}: {error.args[0].str()}") from error
    return True


def _retention_ms(servers: str, topic: str) -> int | None:
    """Return the retention of a topic in ms, or None when there is no such topic."""
    admin = AdminClient(client_config(servers, "waylog-erase"))
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        config = admin.describe_configs([resource])[resource].result(timeout=10)
    except Exception as error:
        if "UNKNOWN_TOPIC" in str(error):
            return None
        raise LogUnreachable(f"the retention of {topic}: {error}") from error
    return int(config["retention.ms"].value)
