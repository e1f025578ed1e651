"""The places job: updates the tables of places with the fixes that are new in a history.

There are two steps, both distributed to tasks: new fixes are split by buckets of devices, then each
bucket is updated (spark.places.bucket). The state of each device is kept at the end of a run, so a
run reads only new fixes. A run takes effect when `_state/current.json` names its tables; an
interrupted run is repeated with the same result.

Folder: `places.parquet` has the places of all devices; `visits/` and `trips/` have one file per
bucket.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec
import pyarrow.parquet as pq

from spark.fixes.fix_table import (
    Part,
    Shard,
    ShardWriter,
    Source,
    bucket_of,
    join_parts,
    read_source,
    split,
)
from spark.places.bucket import BucketResult, BucketTask, run_bucket
from spark.places.schema import FILE, PLACES_SCHEMA
from spark.runtime.tasks import Engine
from waylog.history.file_names import OffsetSpan
from waylog.history.history_reader import HistoryReader, merge_spans
from waylog.history.place_edits import PlaceEdit
from waylog.history.storage import Storage
from waylog.malformed import MALFORMED

logger = logging.getLogger(__name__)

_STATE: Final = "_state"
_CURRENT: Final = "_state/current.json"
_SHARDS: Final = "_shards"

# Initial limit of the fixes in a bucket, which bounds a task's memory, not the number of users.
_BUCKET_ROWS: Final = 1_000_000
_BUCKETS_MAX: Final = 1024
_BUCKETS_MIN: Final = 2

# Below this number of new rows, each bucket reads the files itself, which is quicker than
# splitting.
_SPREAD_ROWS: Final = 50_000

# Bytes that one task splits: enough to be worth a task, few enough for several tasks per machine.
_TASK_BYTES_MIN: Final = 1 << 20
_TASK_BYTES_MAX: Final = 256 << 20
_TASKS_PER_RUN: Final = 4

# Rows of small files that are collected before they are split.
_TOGETHER_ROWS: Final = 65_536

#: The version of the tables and their computation; tables of another version are recomputed.
_VERSION: Final = 4


class PlacesState(msgspec.Struct):
    """The file `_state/current.json`: the run whose tables are current, by bucket."""

    version: int
    runs: list[str]  # run of each bucket, "" while it has no tables
    next_offsets: dict[str, int]  # by partition: offsets from here on are new
    renamed_ms: int = 0  # time of the newest edit that was applied


@dataclass(frozen=True)
class PlacesWritten:
    """The outcome of a computation of places."""

    places: int
    devices: int
    rows: int  # number of new fixes
    changed: list[str]  # devices with changes
    seconds: float


class NewFile(NamedTuple):
    """A file of the history with new fixes."""

    period: str
    source: Source
    bytes: int


class _SpreadTask(NamedTuple):
    history: str
    out: str
    prefix: str
    buckets: int
    sources: list[tuple[str, Source]]  # period, file


def write_places(
    engine: Engine,
    history: str,
    out: str,
    edits: Iterable[PlaceEdit] = (),
    erased: Sequence[str] = (),
) -> PlacesWritten:
    """Update the places of all devices of a history; remove devices that are `erased`.

    Raises ConfigError for a place that cannot be read or written, HistoryUnreadable for a history
    whose manifest is broken.
    """
    return _PlacesRun(engine, history, out, list(edits), erased).run()


def read_state(storage: Storage) -> PlacesState | None:
    """Return the state of the last run, or None if there is none that this version can continue."""
    content = storage.read_bytes(_CURRENT)
    if content is None:
        return None
    try:
        state = msgspec.json.decode(content, type=PlacesState)
    except MALFORMED:
        return None
    return state if state.version == _VERSION else None


class _PlacesRun:
    def __init__(
        self, engine: Engine, history: str, out: str, edits: list[PlaceEdit], erased: Sequence[str]
    ) -> None:
        self._engine = engine
        self._history = HistoryReader(history)
        self._out = Storage(out)
        self._edits = edits
        self._erased = erased
        self._task_bytes = _TASK_BYTES_MIN
        self._run_id = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"

    def run(self) -> PlacesWritten:
        started = time.monotonic()
        self._out.open_folder()
        for folder in (_STATE, _SHARDS, "visits", "trips"):
            self._out.create_folder(folder)
        self._out.delete_folder(_SHARDS)
        state = read_state(self._out)
        if state is not None and self._went_back(state):
            logger.warning("%s has less than before: places anew", self._history.storage.url)
            state = None
        next_offsets = (
            {} if state is None else {int(key): value for key, value in state.next_offsets.items()}
        )
        sources, rows, ends = self._plan(next_offsets)
        total = sum(new.bytes for new in sources)
        self._task_bytes = min(_TASK_BYTES_MAX, max(_TASK_BYTES_MIN, total // _TASKS_PER_RUN))
        if state is None:
            wanted = -(-rows // _BUCKET_ROWS)
            buckets = min(_BUCKETS_MAX, max(_BUCKETS_MIN, 1 << (wanted - 1).bit_length()))
            state = PlacesState(_VERSION, [""] * buckets, {})
        results = self._compute(state, sources, rows)
        for result in results:
            state.runs[result.bucket] = self._run_id
        state.next_offsets = {str(partition): end for partition, end in sorted(ends.items())}
        # An edit of the future, by another clock or program, must not hide later ones.
        now = time.time_ns() // 1_000_000
        state.renamed_ms = max([state.renamed_ms, *(min(edit.time, now) for edit in self._edits)])
        if results or not self._out.exists(FILE):
            self._publish_tables(state, results)
        self._out.replace_bytes(_CURRENT, msgspec.json.encode(state))
        self._clean_up(state)
        places = self._out.read_parquet(FILE, ["device"])
        written = PlacesWritten(
            places.num_rows,
            len(places["device"].unique()),
            sum(result.rows for result in results),
            sorted(device for result in results for device in result.changed),
            time.monotonic() - started,
        )
        logger.info(
            "%d places of %d devices, %d new fixes, %.1f s",
            written.places,
            written.devices,
            written.rows,
            written.seconds,
        )
        return written

    def _went_back(self, state: PlacesState) -> bool:
        """Return whether the history has less than was read from it before."""
        ends: dict[int, int] = defaultdict(int)
        for span in self._history.spans():
            ends[span.partition] = max(ends[span.partition], span.last + 1)
        return any(ends[int(key)] < value for key, value in state.next_offsets.items())

    def _plan(self, next_offsets: dict[int, int]) -> tuple[list[NewFile], int, dict[int, int]]:
        """Return new files by period, the rough number of new rows, and the offsets after them."""
        sources: list[NewFile] = []
        ends = dict(next_offsets)
        spans: list[OffsetSpan] = []
        located = [
            (period, file)
            for period in self._history.periods()
            for file in self._history.files(period)
        ]
        for period, file in located:
            new = [
                OffsetSpan(span.partition, max(span.first, start), span.last)
                for span in self._history.spans_of(file)
                if span.last >= (start := next_offsets.get(span.partition, 0))
            ]
            if not new:
                continue
            whole = new == self._history.spans_of(file)
            source = Source(file.path, None if whole else next_offsets)
            sources.append(NewFile(period, source, file.bytes))
            spans += new
        spans = merge_spans(spans)
        for span in spans:
            ends[span.partition] = max(ends.get(span.partition, 0), span.last + 1)
        return sources, sum(span.last - span.first + 1 for span in spans), ends

    def _compute(
        self,
        state: PlacesState,
        sources: list[NewFile],
        rows: int,
    ) -> list[BucketResult]:
        buckets = len(state.runs)
        edits: dict[str, list[PlaceEdit]] = defaultdict(list)
        for edit in self._edits:
            edits[edit.device].append(edit)
        renamed = {edit.device for edit in self._edits if edit.time > state.renamed_ms}
        shards: dict[int, list[tuple[str, tuple[str, ...]]]] = defaultdict(list)
        direct: list[tuple[str, Source]] = []
        if rows > _SPREAD_ROWS:
            for shard in self._spread(sources, buckets):
                shards[shard.bucket].append((shard.name, shard.periods))
        else:
            direct = [(new.period, new.source) for new in sources]
        tasks = []
        for bucket in range(buckets):
            own = sorted(device for device in renamed if bucket_of(device, buckets) == bucket)
            gone = [device for device in self._erased if bucket_of(device, buckets) == bucket]
            if not (shards[bucket] or direct or own or gone):
                continue
            run = state.runs[bucket]
            tasks.append(
                BucketTask(
                    history=self._history.storage.url,
                    out=self._out.url,
                    bucket=bucket,
                    buckets=buckets,
                    older=_prefix(run, bucket) if run else None,
                    newer=_prefix(self._run_id, bucket),
                    shards=shards[bucket],
                    sources=direct,
                    edits={
                        device: each
                        for device, each in edits.items()
                        if bucket_of(device, buckets) == bucket
                    },
                    renamed=own,
                    erased=gone,
                )
            )
        return self._engine.run(run_bucket, tasks)

    def _spread(self, sources: list[NewFile], buckets: int) -> list[Shard]:
        tasks: list[_SpreadTask] = []
        chunk: list[NewFile] = []
        filled = 0
        for new in sources:
            chunk.append(new)
            filled += new.bytes
            if filled >= self._task_bytes:
                tasks.append(self._spread_task(len(tasks), buckets, chunk))
                chunk, filled = [], 0
        if chunk:
            tasks.append(self._spread_task(len(tasks), buckets, chunk))
        return [shard for shards in self._engine.run(spread_fixes, tasks) for shard in shards]

    def _spread_task(self, number: int, buckets: int, sources: list[NewFile]) -> _SpreadTask:
        return _SpreadTask(
            self._history.storage.url,
            self._out.url,
            f"{_SHARDS}/{self._run_id}-{number}",
            buckets,
            [(new.period, new.source) for new in sources],
        )

    def _publish_tables(self, state: PlacesState, results: Sequence[BucketResult]) -> None:
        """Copy the tables to the paths where readers expect them."""
        for result in results:
            for kind in ("visits", "trips"):
                self._out.copy(
                    f"{_prefix(self._run_id, result.bucket)}-{kind}.parquet",
                    f"{kind}/bucket-{result.bucket:04d}.parquet",
                )
        aside = f"{_STATE}/{self._run_id}-{FILE}"
        with (
            self._out.open_output(aside) as stream,
            pq.ParquetWriter(stream, PLACES_SCHEMA, compression="zstd") as writer,
        ):
            for bucket, run in enumerate(state.runs):
                if run:
                    table = self._out.read_parquet(f"{_prefix(run, bucket)}-places.parquet")
                    if table.num_rows:
                        writer.write_table(table)
        self._out.flush(aside)
        self._out.rename(aside, FILE)
        self._out.flush_folder("")

    def _clean_up(self, state: PlacesState) -> None:
        self._out.delete_folder(_SHARDS)
        used = {f"{_prefix(run, bucket)}-" for bucket, run in enumerate(state.runs) if run}
        for path in self._out.list_files(_STATE):
            if path != _CURRENT and f"{path.rpartition('-')[0]}-" not in used:
                self._out.delete(path)


def _together(
    history: Storage, sources: Sequence[tuple[str, Source]]
) -> Iterator[tuple[str, Part]]:
    """Yield the fixes of each period; small files are joined, since each part has a fixed cost."""
    for period, own in groupby(sources, key=itemgetter(0)):
        waiting: list[Part] = []
        rows = 0
        for _, source in own:
            for part in read_source(history, source):
                waiting.append(part)
                rows += len(part.time)
                if rows >= _TOGETHER_ROWS:
                    yield period, join_parts(waiting)
                    waiting, rows = [], 0
        if waiting:
            yield period, join_parts(waiting)


def _prefix(run: str, bucket: int) -> str:
    return f"{_STATE}/{run}.{bucket:04d}"


def spread_fixes(task: _SpreadTask) -> list[Shard]:
    """Write the fixes of some files by bucket, periods ascending; runs in a task."""
    history, out = Storage(task.history), Storage(task.out)
    periods: dict[int, list[str]] = defaultdict(list)
    with ExitStack() as stack:
        writers: dict[int, ShardWriter] = {}
        for period, part in _together(history, task.sources):
            for bucket, piece in split(part, task.buckets):
                if bucket not in writers:
                    name = f"{task.prefix}-{bucket}.arrow"
                    writers[bucket] = stack.enter_context(ShardWriter(out, name))
                writers[bucket].write(piece)
                periods[bucket].append(period)
        return [
            Shard(bucket, f"{task.prefix}-{bucket}.arrow", tuple(own), writers[bucket].rows)
            for bucket, own in periods.items()
        ]
