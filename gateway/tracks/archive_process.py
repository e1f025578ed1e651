"""`python -m gateway.tracks.archive_process HISTORY PLACES`: answers questions about the past.

A question on standard input is a line of JSON (gateway.tracks.archive.Question); for a track the
points from memory follow, in pieces after their lengths. The answer is a line of JSON (AnswerHead)
and the number of bytes given there: a track in its format, or JSON. The process ends at the end of
its input.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import msgspec
import numpy as np

from gateway.friends.told_squares import begin_of_squares
from gateway.tracks.archive import EXTENT, LENGTH_BYTES, SUMMARIES, Extent, Question
from gateway.tracks.asking import AnswerHead, AnswerRefused, AnswerUnavailable
from gateway.tracks.battery import BatteryLevel, thinned
from gateway.tracks.summaries import MARGIN_MS, summary_of
from gateway.tracks.track_encoders import encode_track
from gateway.tracks.track_points import Points, as_told, between, merged, points_of, unpacked
from waylog.process.garbage_collection import tune_garbage_collector

if TYPE_CHECKING:
    from waylog.history.history_reader import HistoryReader
    from waylog.history.storage import Storage

#: Seconds after which the list of files is refreshed.
_FRESH_S: Final = 5.0
#: Before and after all times that there are.
EVER_MS: Final = 2**62
#: The past is answered after what comes in now, where there is processor time for one of them.
_NICENESS: Final = 5


class _Table(NamedTuple):
    """A table of the places job, whose rows belong to devices and have a begin and an end."""

    begin: str
    end: str
    more: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        return [self.begin, self.end, *self.more]


_TABLES: Final = {
    "visits": _Table(
        "arrival",
        "departure",
        (
            *("place_id", "lat", "lon", "dwell_s", "silent_s", "fixes"),
            *("arrival_earliest", "arrival_latest", "departure_earliest", "departure_latest"),
        ),
    ),
    "trips": _Table("start", "end", ("origin", "destination", "distance_m")),
}


class Reader:
    """Answers questions; `history` or `places` may be empty."""

    def __init__(self, history: str, places: str) -> None:
        self._history_url = history
        self._places_url = places
        self._history: HistoryReader | None = None
        self._looked = 0.0

    def answer(self, question: Question, recent: Points) -> bytes:
        """Return the answer to a question. Raises AnswerUnavailable and AnswerRefused."""
        if question.kind == "track":
            return self._track(question, recent)
        if question.kind in SUMMARIES:
            return summary_of(question, self._opened(), _Source(self, question, recent))
        if question.kind == "battery":
            return msgspec.json.encode(self._battery(question))
        if question.kind == EXTENT:
            return msgspec.json.encode(self._extent(question, recent))
        return self._rows(question)

    def _track(self, question: Question, recent: Points) -> bytes:
        if len(recent) > question.limit:
            raise _too_long(question)
        source = _Source(self, question, recent)
        points = source.points(question.from_ms, question.to_ms, question.limit)
        return encode_track(question.format, question.device, points)

    def _extent(self, question: Question, recent: Points) -> Extent:
        from waylog.history.history_reader import HistoryUnreadable

        device, found, others = question.device, [recent["time"]], 0
        history = self._opened()
        try:
            for period in () if history is None else history.periods():
                assert history is not None
                times = history.times(period, device, -EVER_MS, EVER_MS)
                found.append(times)
                if len(times):
                    others += _of_others(history, period, question)
        except (HistoryUnreadable, OSError) as error:
            raise AnswerUnavailable(str(error)) from error
        return Extent(len(np.unique(np.concatenate(found))), others)

    def _battery(self, question: Question) -> list[BatteryLevel]:
        from waylog.history.history_reader import HistoryUnreadable

        history = self._opened()
        assert history is not None  # else nothing is asked
        from_ms, to_ms = question.from_ms, question.to_ms
        try:
            times, levels = history.measured(question.device, from_ms, to_ms, "battery")
        except (HistoryUnreadable, OSError) as error:
            raise AnswerUnavailable(str(error)) from error
        return thinned(times, levels, from_ms, to_ms)

    def points(self, question: Question, from_ms: int, to_ms: int, limit: int) -> Points:
        """Return the points of a question's device in a period. Raises as `answer` does."""
        from waylog.history.history_reader import HistoryUnreadable, TrackTooLong

        history = self._opened()
        if history is None:
            return unpacked(b"")
        try:
            table = history.track_table(question.device, from_ms, to_ms, rows_max=limit)
        except TrackTooLong as error:
            raise _too_long(question) from error
        except (HistoryUnreadable, OSError) as error:
            raise AnswerUnavailable(str(error)) from error
        return points_of(table)

    def _opened(self) -> HistoryReader | None:
        """Return the history, with a list of files that is fresh; None if there is none."""
        from waylog.config import ConfigError
        from waylog.history.history_reader import HistoryReader, HistoryUnreadable

        if not self._history_url:
            return None
        try:
            if self._history is None:
                self._history = HistoryReader(self._history_url)
                self._looked = time.monotonic()
            elif time.monotonic() - self._looked > _FRESH_S:
                self._history.refresh()
                self._looked = time.monotonic()
        except (ConfigError, HistoryUnreadable, OSError) as error:
            raise AnswerUnavailable(str(error)) from error
        return self._history

    def _rows(self, question: Question) -> bytes:
        from waylog.config import ConfigError
        from waylog.history.storage import Storage

        try:
            table = _TABLES[question.kind]
            storage = Storage(self._places_url)
            found: list[dict[str, Any]] = []
            for path in sorted(storage.list_files(question.kind)):
                if path.endswith(".parquet"):
                    found += _rows_in(storage, path, table, question)
                if len(found) > question.limit:
                    raise AnswerRefused(f"too many {question.kind}: ask for a shorter time")
        except (ConfigError, OSError) as error:
            raise AnswerUnavailable(str(error)) from error
        found.sort(key=lambda row: int(row[table.begin]))
        return b"[\n" + b",\n".join(map(msgspec.json.encode, found)) + b"\n]"


def _of_others(history: HistoryReader, period: str, question: Question) -> int:
    """Count the rows of a device in a period that have another source than is asked about."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = 0
    for rows in history.scan(period, [question.device], ["device", "source"]):
        own = pc.equal(rows["device"].cast(pa.string()), question.device)
        sources = rows["source"].cast(pa.string()).filter(own)
        same = pc.fill_null(pc.equal(sources, question.source), False)
        count += len(sources) - int(pc.sum(same).as_py() or 0)
    return count


class _Source:
    """The points of one question, from the history and from memory, as who asks may see them."""

    def __init__(self, reader: Reader, question: Question, recent: Points) -> None:
        self._reader = reader
        self._question = question
        self.recent = recent

    def points(self, from_ms: int, to_ms: int, limit: int) -> Points:
        """Return the points of a period. Raises AnswerRefused for more than the limit."""
        circles, grid = self._question.circles, self._question.grid
        begin_ms = from_ms if grid is None else begin_of_squares(from_ms)
        past = self._reader.points(self._question, begin_ms, to_ms, limit)
        points = merged(past, between(self.recent, begin_ms, to_ms))
        if len(points) > limit:
            raise _too_long(self._question)
        return points if circles is None else as_told(points, circles, grid, from_ms)


def _too_long(question: Question) -> AnswerRefused:
    return AnswerRefused(
        f"more than {question.limit} points: ask for a shorter time, with from and to"
    )


def _read_recent(questions: BinaryIO, question: Question) -> Points:
    """Read the points that follow a question, and return those of its time.

    Not many more than its limit: the rest is read and dropped.
    """
    found: list[Points] = [unpacked(b"")]
    count = 0
    # What began before a period, and ends after it, is told whole.
    margin = MARGIN_MS if question.kind in SUMMARIES else 0
    begin_ms = question.from_ms - margin
    if question.grid is not None:
        begin_ms = begin_of_squares(begin_ms)
    with_points = question.kind in ("track", EXTENT) or question.kind in SUMMARIES
    while with_points and (size := int.from_bytes(questions.read(LENGTH_BYTES), "big")):
        piece = unpacked(questions.read(size))
        if count <= question.limit:
            found.append(between(piece, begin_ms, question.to_ms + margin))
            count += len(found[-1])
    return np.concatenate(found)


def _rows_in(storage: Storage, path: str, kind: _Table, question: Question) -> list[dict[str, Any]]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with storage.open_input(path) as stream:
        parquet = pq.ParquetFile(stream)
        column = parquet.schema_arrow.get_field_index("device")
        groups = []
        for group in range(parquet.num_row_groups):
            statistics = parquet.metadata.row_group(group).column(column).statistics
            known = statistics is not None and statistics.has_min_max
            if not known or statistics.min <= question.device <= statistics.max:
                groups.append(group)
        if not groups:
            return []
        # Tables of an older version, until the next run of the places job, lack some.
        columns = [name for name in kind.columns if name in parquet.schema_arrow.names]
        table = parquet.read_row_groups(groups, ["device", *columns], use_threads=False)
    own = pc.and_(
        pc.equal(table["device"], question.device),
        pc.and_(
            pc.greater_equal(table[kind.end], question.from_ms),
            pc.less_equal(table[kind.begin], question.to_ms),
        ),
    )
    rows: list[dict[str, Any]] = table.filter(own).select(columns).to_pylist()
    return rows


def main(history: str, places: str) -> None:
    """Answer questions until the end of the input."""
    # Ctrl-C reaches the whole process group; this process ends when the gateway closes its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    reader = Reader(history, places)
    # A year's track is a hundred thousand objects that are freed together.
    tune_garbage_collector()
    questions, output = sys.stdin.buffer, sys.stdout.buffer
    while line := questions.readline():
        content = b""
        try:
            question = msgspec.json.decode(line, type=Question)
            content = reader.answer(question, _read_recent(questions, question))
            head = AnswerHead(bytes=len(content))
        except AnswerRefused as error:
            head = AnswerHead(error=str(error), refused=True)
        except AnswerUnavailable as error:
            head = AnswerHead(error=str(error) or type(error).__name__)
        except Exception:  # no content of a file may end the process
            traceback.print_exc()
            head = AnswerHead(error="it could not be read; the gateway's log has the details")
        output.write(msgspec.json.encode(head) + b"\n" + content)
        output.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
    # Arrow's threads that are still starting while the interpreter shuts down abort the process.
    os._exit(0)
