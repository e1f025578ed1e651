"""The history without Spark: the same files, written by this process alone.

For machines without enough memory for a JVM. The position is in `_checkpoint/arrow.json`, which is
written after each batch. What Spark has written since is known from its write-ahead log; rows of a
batch that it has not finished are recognised by their files and not written again. So the two can
be used in turn.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
import pyarrow as pa

from spark.fixes.log_fixes import next_ends, read_fixes
from spark.fixes.log_source import OffsetRange, open_log
from spark.fixes.staging import StagedFile, land
from spark.history.files import Committed, HistoryFiles
from waylog.history.storage import Storage
from waylog.kafka.clients import LogUnreachable
from waylog.malformed import MALFORMED
from waylog.process.watchdog import ProgressWatchdog

logger = logging.getLogger(__name__)

CHECKPOINT: Final = "_checkpoint/arrow.json"
#: Seconds that one query waits for the log, and seconds between two queries.
_PATIENCE_S: Final = 10.0
_PAUSE_S: Final = 1.0


class ArrowHistory:
    """A job that writes batches until it is stopped or, with `once`, until the log's end."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        storage: Storage,
        files: HistoryFiles,
        *,
        batch_rows: int,
        on_batch: Callable[[Committed, float], None],
        watchdog: ProgressWatchdog,
        written: Mapping[int, int] | None = None,
    ) -> None:
        """`written` are the next offsets after what another engine has finished."""
        self._written = {} if written is None else dict(written)
        self._servers = bootstrap_servers
        self._topic = topic
        self._storage = storage
        self._files = files
        self._batch_rows = batch_rows
        self._on_batch = on_batch
        self._watchdog = watchdog
        self._offsets = open_log(bootstrap_servers)

    def start(self) -> dict[int, int]:
        """Return the next offset of each partition after all batches that are finished."""
        position = self._read_checkpoint()
        for partition, offset in self._written.items():
            position[partition] = max(position.get(partition, 0), offset)
        return position

    def run(self, stopping: threading.Event, trigger_s: float, *, once: bool) -> None:
        """Write batches; without `once`, wait for a log that does not answer.

        With `once`, raises LogUnreachable when the log does not answer.
        """
        try:
            position = self.start()
            target = None
            while not stopping.is_set():
                started = time.monotonic()
                self._watchdog.advanced()
                try:
                    watermarks = self._offsets.watermarks(self._topic, _PATIENCE_S, stopping)
                except LogUnreachable as error:
                    if once or stopping.is_set():
                        raise
                    logger.info("%s; the history waits", error)
                    stopping.wait(_PAUSE_S)
                    continue
                for partition, marks in watermarks.items():
                    # Skip records that retention has deleted; a new partition starts at its
                    # beginning.
                    position[partition] = max(position.get(partition, 0), marks.low)
                ends = {partition: marks.high for partition, marks in watermarks.items()}
                if once:
                    target = target or ends
                    ends = target
                batch = next_ends(position, ends, self._batch_rows)
                if batch == position:
                    if once:
                        return
                elif not self._write(position, batch, stopping):
                    return
                more = any(batch[partition] < ends.get(partition, 0) for partition in batch)
                position = batch
                if not (once or more):
                    left_s = trigger_s - (time.monotonic() - started)
                    self._watchdog.wait(stopping, max(0.0, left_s))
        finally:
            self._offsets.close()

    def _write(
        self, position: dict[int, int], batch: dict[int, int], stopping: threading.Event
    ) -> bool:
        """Stage and commit one batch; return False if a stop has interrupted it."""
        started = time.monotonic()
        landed: list[StagedFile] = []
        for partition, end in batch.items():
            start = position.get(partition, 0)
            if end <= start:
                continue
            if stopping.is_set():
                return False
            wanted = OffsetRange(partition, start, end)
            fixes = read_fixes(self._servers, self._topic, wanted, stopping)
            for rows in land(self._watched(fixes), self._storage, start, end):
                landed += [StagedFile(**row) for row in rows.to_pylist()]
                self._watchdog.advanced()
        committed = self._files.commit(landed)
        self._watchdog.advanced()
        self._storage.create_folder(CHECKPOINT.rpartition("/")[0])
        self._storage.replace_bytes(
            CHECKPOINT, msgspec.json.encode({str(key): value for key, value in batch.items()})
        )
        self._on_batch(committed, time.monotonic() - started)
        return True

    def _watched(self, fixes: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in fixes:
            self._watchdog.advanced()
            yield batch

    def _read_checkpoint(self) -> dict[int, int]:
        content = self._storage.read_bytes(CHECKPOINT)
        if content is None:
            return {}
        try:
            return msgspec.json.decode(content, type=dict[int, int])
        except MALFORMED as error:
            # The files show which offsets were written: reading the log again only costs time.
            logger.warning("%s cannot be read, the log is read again: %s", CHECKPOINT, error)
            return {}
