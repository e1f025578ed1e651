"""What a history has: offsets, rows of a day, ids; and how far its job has come.

Memory depends on the size of row groups and on the offsets that are asked for at once, a byte each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from waylog.audit.facts import FixFact
from waylog.history.file_names import HistoryFile
from waylog.history.history_reader import HistoryReader, HistoryUnreadable
from waylog.history.row_groups import read_row_groups
from waylog.history.row_layout import to_rows
from waylog.history.storage_errors import shown_url
from waylog.kafka.ranges.log_ranges import Range
from waylog.kafka.topics import LOCATION
from waylog.malformed import MALFORMED

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ARROW_CHECKPOINT: Final = "_checkpoint/arrow.json"
_SPARK_CHECKPOINTS: Final = ("_checkpoint/python", "_checkpoint/jvm")
_ATTEMPTS: Final = 3
_PLACE: Final = ("kafka_partition", "kafka_offset")
_T = TypeVar("_T")


class HistoryPosition(NamedTuple):
    """The next offset of each partition that a history's job will read."""

    positions: dict[int, int]
    #: False: there is no checkpoint in the folder, and the files alone tell how far it has come.
    is_exact: bool


class Bounds(NamedTuple):
    """A column's least and greatest value that is wanted, both inclusive."""

    column: str
    least: int
    greatest: int


class _Exchanged(HistoryUnreadable):
    """A compaction has exchanged a file since it was listed."""


class HistoryRows:
    """A history at a URL. `refresh` comes first; all methods raise HistoryUnreadable."""

    def __init__(self, url: str) -> None:
        """`url` need not exist yet."""
        self._url = url
        self._opened: HistoryReader | None = None

    @property
    def place(self) -> str:
        """The folder or URL, without a password."""
        return shown_url(self._url)

    def refresh(self) -> None:
        """List the files again. Raises ConfigError for a URL that cannot be opened."""
        try:
            if self._opened is None:
                self._opened = HistoryReader(self._url)
            else:
                self._opened.refresh()
        except OSError as error:
            raise HistoryUnreadable(str(error)) from error

    @property
    def _reader(self) -> HistoryReader:
        assert self._opened is not None
        return self._opened

    @property
    def is_empty(self) -> bool:
        """True if there is no file."""
        return not self._reader.files()

    def position(self) -> HistoryPosition:
        """Return how far the job has come: by its checkpoints, else by the files."""
        try:
            return self._position()
        except OSError as error:
            raise HistoryUnreadable(str(error)) from error

    def _position(self) -> HistoryPosition:
        storage = self._reader.storage
        found = [_offsets_in(storage.read_bytes(_ARROW_CHECKPOINT))]
        for folder in _SPARK_CHECKPOINTS:
            done = _numbers(storage.list_files(f"{folder}/commits"))
            planned = _numbers(storage.list_files(f"{folder}/offsets"))
            if both := done & planned:
                content = storage.read_bytes(f"{folder}/offsets/{max(both)}")
                # A version, Spark's own properties, and the offsets of the only source.
                found.append(_offsets_in((content or b"").splitlines()[-1:]))
        known = [each for each in found if each is not None]
        if not known:
            known = [{}]
            for span in self._reader.spans():
                known[0][span.partition] = max(known[0].get(span.partition, 0), span.last + 1)
            return HistoryPosition(known[0], is_exact=False)
        # Engines may take turns in one folder: the newest position counts.
        return HistoryPosition(
            {
                partition: max(each.get(partition, 0) for each in known)
                for partition in set().union(*known)
            },
            is_exact=True,
        )

    def offsets(
        self, ranges: Mapping[int, Range], progress: Callable[[int, int], object] = lambda *_: None
    ) -> Offsets:
        """Return which offsets of some ranges are in a file."""
        return self._tried(lambda: self._offsets(ranges, progress))

    def _offsets(
        self, ranges: Mapping[int, Range], progress: Callable[[int, int], object]
    ) -> Offsets:
        offsets = Offsets(ranges)
        files = [file for file in self._reader.files() if self._overlaps(file, ranges)]
        bounds = _offset_bounds(ranges)
        for done, file in enumerate(files):
            for batch in self._scan(file, bounds, _PLACE):
                offsets.add(batch["kafka_partition"].to_numpy(), batch["kafka_offset"].to_numpy())
            progress(done + 1, len(files))
        return offsets

    def rows_at(self, ranges: Mapping[int, Range], device: str | None) -> Iterator[FixFact]:
        """Yield the rows within ranges of offsets, of one device or of all, in any order."""
        for file in self._reader.files():
            if self._overlaps(file, ranges):
                for fact in self._facts(file, _offset_bounds(ranges), device):
                    wanted = ranges.get(fact.partition)
                    if wanted is not None and wanted.start <= fact.offset < wanted.end:
                        yield fact

    def rows_received(
        self, from_ms: int, to_ms: int, below: Mapping[int, int], device: str | None
    ) -> Iterator[FixFact]:
        """Yield the rows that were received in a time, with offsets below those of `below`.

        For what the log has no more. All files are looked at; those without such rows cost their
        footer.
        """
        bounds = [Bounds("received", from_ms, to_ms - 1)]
        for file in self._reader.files():
            for fact in self._facts(file, bounds, device):
                if from_ms <= fact.received < to_ms and fact.offset < below.get(fact.partition, 0):
                    yield fact

    def find(self, wanted: Collection[tuple[str, str]], dates: Collection[str]) -> list[FixFact]:
        """Return the rows with some pairs of device and id, of fixes made on some UTC dates."""
        devices = sorted({device for device, _ in wanted})
        return self._tried(lambda: list(self._find(set(wanted), devices, dates)))

    def find_id(self, identity: str, date: str) -> list[FixFact]:
        """Return the rows with an id, of any device, of fixes made on a UTC date."""
        return self._tried(lambda: list(self._find_id(identity, date)))

    def _find(
        self, wanted: set[tuple[str, str]], devices: Sequence[str], dates: Collection[str]
    ) -> Iterator[FixFact]:
        periods = {self._reader.manifest.period_of(date) for date in dates}
        ids = pa.array(sorted({identity for _, identity in wanted}), pa.string())
        for period in sorted(periods):
            for batch in self._reader.scan(period, devices, _COLUMNS):
                own = batch.filter(pc.is_in(batch["id"], value_set=ids))
                yield from (fact for fact in _facts_in(own) if (fact.device, fact.id) in wanted)

    def _find_id(self, identity: str, date: str) -> Iterator[FixFact]:
        for batch in self._reader.scan(date, None, _COLUMNS):
            yield from _facts_in(batch.filter(pc.equal(batch["id"], identity)))

    def _facts(
        self, file: HistoryFile, bounds: Sequence[Bounds], device: str | None
    ) -> Iterator[FixFact]:
        for batch in self._scan(file, bounds, _COLUMNS, device):
            rows = batch if device is None else batch.filter(pc.equal(batch["device"], device))
            yield from _facts_in(rows)

    def _overlaps(self, file: HistoryFile, ranges: Mapping[int, Range]) -> bool:
        return any(
            (wanted := ranges.get(span.partition)) is not None
            and span.first < wanted.end
            and span.last >= wanted.start
            for span in self._reader.spans_of(file)
        )

    def _scan(
        self,
        file: HistoryFile,
        bounds: Sequence[Bounds],
        columns: Sequence[str],
        device: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the row groups of a file that may have rows within the bounds."""
        try:
            with self._reader.storage.open_input(file.path) as stream:
                parquet = pq.ParquetFile(stream)
                groups = [
                    group
                    for group in range(parquet.num_row_groups)
                    if _may_have(parquet, group, bounds, device)
                ]
                if groups:
                    for batch in read_row_groups(parquet, list(columns), groups=groups):
                        yield to_rows(batch)
        except FileNotFoundError as error:
            raise _Exchanged(f"the history changes: {error}") from error
        except (OSError, pa.ArrowException) as error:
            raise HistoryUnreadable(f"{file.path}: {error}") from error

    def _tried(self, read: Callable[[], _T]) -> _T:
        """Read, and again with the present files if a compaction has exchanged some meanwhile."""
        for attempt in range(_ATTEMPTS):
            try:
                return read()
            except (_Exchanged, FileNotFoundError) as error:
                if attempt == _ATTEMPTS - 1:
                    raise HistoryUnreadable(f"the history changes: {error}") from error
                self.refresh()
        raise AssertionError


class Offsets:
    """Which offsets of some ranges are there; a byte each."""

    _ABSENT: Final = 0
    _THERE: Final = 1
    _SEEN: Final = 2

    def __init__(self, ranges: Mapping[int, Range]) -> None:
        self._ranges = dict(ranges)
        # Single bytes are read in Python's own type, which is faster than NumPy at that.
        self._states = {
            partition: bytearray(max(0, each.end - each.start))
            for partition, each in ranges.items()
        }

    def add(self, partitions: NDArray[np.int32], offsets: NDArray[np.int64]) -> None:
        """Note offsets, those outside of the ranges too."""
        for partition in np.unique(partitions).tolist():
            wanted = self._ranges.get(partition)
            if wanted is not None:
                own = offsets[partitions == partition]
                own = own[(own >= wanted.start) & (own < wanted.end)] - wanted.start
                np.frombuffer(self._states[partition], np.uint8)[own] = self._THERE

    def has(self, partition: int, offset: int) -> bool:
        """Return whether an offset within the ranges is there, and note that it was asked for."""
        states = self._states[partition]
        index = offset - self._ranges[partition].start
        if states[index] == self._ABSENT:
            return False
        states[index] = self._SEEN
        return True

    @property
    def unseen(self) -> int:
        """How many offsets are there that `has` was never asked for."""
        return sum(states.count(self._THERE) for states in self._states.values())


_COLUMNS: Final = ("device", "id", "time", "received", *_PLACE)


def _facts_in(batch: pa.RecordBatch) -> Iterator[FixFact]:
    columns = [batch[name].to_pylist() for name in _COLUMNS]
    for device, identity, time, received, partition, offset in zip(*columns, strict=True):
        yield FixFact(partition, offset, device, identity, time, received)


def _offset_bounds(ranges: Mapping[int, Range]) -> list[Bounds]:
    own = [each for each in ranges.values() if each.start < each.end]
    if not own:
        return [Bounds("kafka_offset", 0, -1)]
    least, greatest = min(each.start for each in own), max(each.end for each in own) - 1
    return [Bounds("kafka_offset", least, greatest)]


def _may_have(parquet: Any, group: int, bounds: Sequence[Bounds], device: str | None) -> bool:
    """Return whether a row group may have rows within the bounds, by its statistics."""
    metadata = parquet.metadata.row_group(group)
    names = parquet.schema_arrow
    for column, least, greatest in bounds:
        statistics = metadata.column(names.get_field_index(column)).statistics
        is_known = statistics is not None and statistics.has_min_max
        # As they are stored: whole numbers, where a time would be a moment.
        if is_known and (statistics.max_raw < least or statistics.min_raw > greatest):
            return False
    if device is not None:
        statistics = metadata.column(names.get_field_index("device")).statistics
        # A packed file is ordered by place, so that its row groups have several runs of names.
        if statistics is not None and statistics.has_min_max:
            return bool(statistics.min <= device <= statistics.max)
    return True


def _numbers(paths: Sequence[str]) -> set[int]:
    names = (path.rpartition("/")[2] for path in paths)
    return {int(name) for name in names if re.fullmatch(r"\d{1,18}", name)}


def _offsets_in(content: bytes | list[bytes] | None) -> dict[int, int] | None:
    """Return the offsets in a checkpoint, None if there are none to be read."""
    if isinstance(content, list):
        content = content[0] if content else None
    if content is None:
        return None
    try:
        found = msgspec.json.decode(content)
        if isinstance(found, str):
            found = msgspec.json.decode(found)
        if isinstance(found, dict) and LOCATION in found:
            found = found[LOCATION]  # of Spark's own Kafka connector
        return msgspec.convert(found, dict[int, int], strict=False)
    except MALFORMED:
        return None
