"""Erasing somebody: what the history, the tables of places and compacted topics have of a device.

The log's topics that keep everything for a time can not lose single records: where values are
sealed nobody can read these any more, and the report says until when there are others. Until then
`_erased.json` keeps the history from taking them in again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from spark.compaction import rewrite_without
from spark.history_manifest import ManifestWriter
from spark.landing import PARQUET_OPTIONS
from spark.place_topics import read_edits
from waylog.history_reader import (
    ERASED,
    CompactedFile,
    ErasedDevice,
    HistoryFile,
    HistoryReader,
    device_runs,
    read_erased,
)
from waylog.kafka import LogUnreachable, client_config, producer_config
from waylog.storage import Storage
from waylog.topics import ADDRESS, ERROR, EVENT, LOCATION, PLACE, PLACE_EDIT
from waylog.value_keys import destroy_keys

_FOREVER: Final = -1


class KeptUntil(msgspec.Struct):
    """A topic that can not lose single records."""

    topic: str
    until: int | None  # ms; None: for ever, unless its retention is set
    #: What was written since then can not be read any more: its key is destroyed (ms).
    unreadable_since: int | None = None


class ErasureReport(msgspec.Struct):
    """What was removed, and what is left."""

    devices: list[str]
    erased: int  # when, ms
    rows: int = 0  # of the history
    files_rewritten: int = 0
    files_looked_at: int = 0
    places: int = 0
    tombstones: dict[str, int] = {}  # by topic
    keys: int = 0  # destroyed
    keys_gone: bool = True  # from the log's files too, not only for its readers
    kept: list[KeptUntil] = []
    seconds: float = 0.0


def erase_history(history: str, devices: Sequence[str], report: ErasureReport) -> None:
    """Rewrite the files that have rows of some devices; others stay as they are."""
    writer = ManifestWriter(history)
    try:
        storage = writer.storage
        known = {each.device: each for each in read_erased(storage)}
        for device in devices:
            known[device] = ErasedDevice(device, report.erased)
        # First, so that nothing comes in again that is removed below.
        storage.replace_bytes(ERASED, msgspec.json.encode(list(known.values())))
        reader = HistoryReader(history)
        exchanged: dict[str, CompactedFile] = {}
        for file in reader.files():
            report.files_looked_at += 1
            if not _has(reader, file, devices):
                continue
            report.files_rewritten += 1
            if file.span is not None:
                report.rows += _rewrite_landed(storage, file.path, devices)
            else:
                newer, removed = rewrite_without(storage, file, devices)
                report.rows += removed
                exchanged[file.path] = newer
        if exchanged:
            writer.exchange(exchanged)
            writer.delete_superseded()
    finally:
        writer.close()


def _has(reader: HistoryReader, file: HistoryFile, devices: Sequence[str]) -> bool:
    wanted = set(devices)
    with reader.storage.open_input(file.path) as stream:
        parquet = pq.ParquetFile(stream, read_dictionary=["device"])
        runs = device_runs(parquet)
        if runs is not None:
            return any(run.device in wanted for run in runs)
        return any(
            not wanted.isdisjoint(batch["device"].dictionary.to_pylist())
            for batch in parquet.iter_batches(columns=["device"], use_threads=False)
        )


def _rewrite_landed(storage: Storage, path: str, devices: Sequence[str]) -> int:
    """The file's name stays, even without rows: it says which offsets were taken in."""
    table = storage.read_parquet(path)
    own = pc.is_in(table["device"], pa.array(list(devices), pa.string()))
    kept = table.filter(pc.invert(own))
    folder = path.rpartition("/")[0]
    aside = f"_erasing/{path.rpartition('/')[2]}.tmp"
    storage.create_folder("_erasing")
    storage.write_parquet(aside, kept, **PARQUET_OPTIONS)
    storage.rename(aside, path)
    storage.flush_folder(folder)
    return int(table.num_rows - kept.num_rows)


def erase_topics(
    servers: str, devices: Sequence[str], report: ErasureReport, patience_s: float = 0.0
) -> None:
    """Tombstones into compacted topics, the end of all keys, and how long the other topics keep
    what they have. Waits up to `patience_s` until the keys have left the log's files.

    Raises LogUnreachable.
    """
    wanted = set(devices)
    edits = [edit.key for edit in read_edits(servers) if edit.device in wanted]
    keys = [device.encode() for device in devices]
    records = [
        *((ADDRESS, key) for key in keys),
        *((PLACE, key) for key in keys),
        *((PLACE_EDIT, key) for key in edits),
    ]
    producer = LibrdkafkaProducer(producer_config(servers, "waylog-erase"))
    failures: list[str] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    for topic, key in records:
        producer.produce(topic, None, key, on_delivery=on_delivery)
        report.tombstones[topic] = report.tombstones.get(topic, 0) + 1
    if producer.flush(30.0) or failures:
        raise LogUnreachable(f"tombstones: {failures[0] if failures else 'no answer'}")
    destroyed = destroy_keys(servers, devices, patience_s)
    report.keys, report.keys_gone = destroyed.keys, destroyed.gone
    now = time.time_ns() // 1_000_000
    for topic in (LOCATION, EVENT, ERROR):
        retention = _retention_ms(servers, topic)
        if retention is not None:
            until = None if retention == _FOREVER else now + retention
            report.kept.append(KeptUntil(topic, until, destroyed.oldest_ms))


def _retention_ms(servers: str, topic: str) -> int | None:
    """How long a topic keeps records; None when there is no such topic."""
    admin = AdminClient(client_config(servers, "waylog-erase"))
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        config = admin.describe_configs([resource])[resource].result(timeout=10)
    except Exception as error:
        if "UNKNOWN_TOPIC" in str(error):
            return None
        raise LogUnreachable(f"the retention of {topic}: {error}") from error
    return int(config["retention.ms"].value)
