"""The history job: topic `location` to Parquet, as a Spark structured stream.

Spark plans the batches, keeps their offsets in its write-ahead log and distributes them to tasks.
Tasks write staged files (spark.fixes.staging). This job gives the files of each batch their final
names (spark.history.files), after which Spark records the batch as done. Spark's own file sink is
not used: it is exactly-once only for readers that know its log, and leaves broken files to all
others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark.fixes.log_source import open_log
from spark.fixes.staging import StagedFile
from spark.history.files import RECENT_IDS, Committed, HistoryFiles
from spark.history.health.job_status import JobStatus
from spark.history.health.query_progress import QueryProgress
from spark.history.health.thread_steps import ThreadSteps
from spark.history.periodic_compaction import PeriodicCompaction
from spark.history.stream_query import StreamDied, await_end, check_fatal, stop_query
from spark.runtime.checkpoint import check_checkpoint
from spark.runtime.reasons import reason_of
from spark.runtime.session import (
    DEFAULT_MASTER,
    close_session,
    jvm_end,
    kill_session,
    open_session_unless,
)
from spark.runtime.watched import watched
from waylog.cli import CommandError
from waylog.history.job_report import JobReport, remove_report, write_report
from waylog.history.storage import Storage
from waylog.history.storage_errors import unavailable
from waylog.kafka.clients import LogForbidden, LogUnreachable
from waylog.kafka.ranges.log_ranges import Watermarks
from waylog.kafka.topics import LOCATION
from waylog.observability.telemetry import now_ms
from waylog.private_files import tighten
from waylog.process.stop_limit import StopLimit
from waylog.process.threads import start_thread
from waylog.process.watchdog import ProgressWatchdog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark.history.erasure_applier import ErasureApplier
    from spark.runtime.tasks import Engine

logger = logging.getLogger(__name__)

#: Seconds that a run with `once` waits for a log that does not answer.
_ONCE_WAIT_S: Final = 2.0

# Seconds until it is looked again whether a missing right has been given.
_FORBIDDEN_WAIT_S: Final = 5.0

# Seconds without a step after which the job counts as one that hangs. A step is at most the task of
# a batch, or giving its files their names; either takes minutes where the storage is slow.
_STEP_MAX_S: Final = 1800.0

# The same for a computation of places, of which no steps are seen: the first one of a long history
# takes hours.
_PLACES_MAX_S: Final = 6 * 3600.0

# Milliseconds between two reports of a job of which nothing changes.
_REPORT_MS: Final = 10_000

_RESTART_WAIT_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass(frozen=True)
class HistorySettings:
    """The settings of a history job."""

    bootstrap_servers: str
    out: str
    once: bool = False
    engine: str = "spark"  # or "arrow"
    source: str = "python"  # or "jvm"; only with Spark
    master: str = DEFAULT_MASTER
    # None: inside `out`, so that both are kept or deleted together.
    checkpoint: str | None = None
    trigger_s: float = 5.0
    places: str | None = None
    places_interval_s: float = 300.0
    compact_interval_s: float = 0.0  # 0: never
    compact_settled_h: float = 24.0
    jars: Sequence[str] = field(default_factory=tuple)
    packages: Sequence[str] = field(default_factory=tuple)
    recent_ids: int = RECENT_IDS
    batch_rows: int = 250_000
    # Seconds that records may wait without a batch being written, and what is done then.
    stalled_after_s: float = 300.0
    on_stall: str = "wait"  # or "arrow": without Spark from then on

    @property
    def checkpoint_url(self) -> str:
        """The URL of Spark's offsets; each of the two sources has its own format and folder."""
        check_checkpoint(self.out, self.checkpoint)
        base = self.checkpoint or f"{Storage(self.out).spark_url}/_checkpoint"
        return f"{base.rstrip('/')}/{self.source}"

    @property
    def checkpoint_in_out(self) -> str | None:
        """The folder in `out` with the offsets of the Python source; None if they are elsewhere."""
        own = self.checkpoint is None and self.source == "python"
        return "_checkpoint/python" if own else None


class Stalled(Exception):
    """Spark writes nothing, and another engine is to go on."""


class HistoryJob:
    """A job that runs until `stop` or, with `once`, until it has written all records."""

    def __init__(
        self,
        settings: HistorySettings,
        on_ready: Callable[[], None] = lambda: None,
        stop_limit: StopLimit | None = None,
    ) -> None:
        """`stop_limit` ends a stop that takes too long; by default none does."""
        self._settings = settings
        self._stop_limit = stop_limit or StopLimit()
        self._watchdog = ProgressWatchdog(_STEP_MAX_S)
        self._on_ready = on_ready
        self._storage = Storage(settings.out)
        self._files = HistoryFiles(self._storage, settings.recent_ids)
        self._steps = ThreadSteps()
        self._status = JobStatus(
            settings.bootstrap_servers,
            [Path(self._storage.path)] if self._storage.local else [],
            self._steps,
            self._report_no_more,
            settings.stalled_after_s,
            self._write_report,
        )
        self._engine = settings.engine
        self._wrote_ms: int | None = None
        self._reported: JobReport | None = None
        # Held while a batch is given its names, and taken from Spark for good before another engine
        # writes.
        self._writing = threading.Lock()
        self._spark_may_write = True
        self._stopping = threading.Event()
        self._new_rows = threading.Event()
        self.total = Committed()
        self._batches = 0
        # Threads that end by themselves after a stop was requested.
        self._ending: list[threading.Thread] = []

    def stop(self) -> None:
        """Request a clean stop; may be called from a signal handler."""
        self._stop_limit.begin()
        self._stopping.set()

    def run(self) -> Committed:
        """Write the history; return the counts of this run.

        Raises ConfigError for settings that cannot work, CommandError when the log or the history
        is not usable.
        """
        if self._settings.engine == "spark":
            # Check the settings before anything is started.
            logger.debug("offsets are kept in %s", self._settings.checkpoint_url)
        self._storage.open_folder()
        if self._storage.local:
            tighten([Path(self._storage.path)])
        lock = self._storage.lock()
        try:
            self._files.open()
            self._check_log()
            if self._stopping.is_set():
                return self.total
            if not self._settings.once:
                self._start(partial(self._status.watch, self._stopping), "status", daemon=True)
            self._honour_erasures()
            if self._stopping.is_set():
                return self.total
            if self._settings.engine == "arrow":
                self._run_arrow()
                return self.total
            session = open_session_unless(
                self._stopping,
                "waylog history",
                master=self._settings.master,
                jars=self._settings.jars,
                packages=self._settings.packages,
                planning_only=self._settings.source == "python",
            )
            if session is None:
                return self.total
            self._run_in(session)
        except BaseException:
            # What the end waits for may hang.
            self._stop_limit.begin()
            raise
        finally:
            self._stopping.set()
            for thread in self._ending:
                thread.join()
            self._watchdog.close()
            if self._storage.local and self._reported is not None:
                remove_report(Path(self._storage.path))
            if lock is not None:
                lock.close()
        return self.total

    def _honour_erasures(self) -> None:
        """Apply the erasures of the log, now and later; return early if a stop is requested."""
        from spark.history.erasure_applier import ErasureApplier

        settings = self._settings
        upkeep = ErasureApplier(
            settings.bootstrap_servers, settings.out, settings.places, self._stopping, self._steps
        )
        try:
            if not self._has_begun(upkeep):
                upkeep.close()
                return
        except BaseException:
            upkeep.close()
            raise
        self._ending.append(self._start(upkeep.run, "erasures", daemon=False))

    def _start(self, work: Callable[[], object], name: str, *, daemon: bool) -> threading.Thread:
        return start_thread(work, name, may_end=self._stopping.is_set, daemon=daemon)

    def _has_begun(self, upkeep: ErasureApplier) -> bool:
        """Wait until the erasures were applied; return False if a stop comes first."""
        while True:
            try:
                has_begun = upkeep.begin()
                self._status.starts()
                return has_begun
            except LogUnreachable as error:
                if self._settings.once or not isinstance(error, LogForbidden):
                    raise CommandError(str(error)) from error
                self._status.waits(f"{error}; waiting")
            if self._stopping.wait(_FORBIDDEN_WAIT_S):
                return False

    def _check_log(self) -> None:
        """Wait for the log, and check that it is the one this history was written from."""
        servers = self._settings.bootstrap_servers
        offsets = open_log(servers)
        deadline = time.monotonic() + _ONCE_WAIT_S
        try:
            while not self._stopping.is_set():
                try:
                    watermarks = offsets.watermarks(LOCATION, 2.0, self._stopping)
                except LogUnreachable as error:
                    watermarks, reason = {}, str(error)
                    if isinstance(error, LogForbidden):
                        deadline = 0.0
                else:
                    reason = f"there is no topic {LOCATION}"
                if watermarks:
                    self._compare(watermarks)
                    self._status.starts()
                    return
                if self._settings.once and time.monotonic() > deadline:
                    raise CommandError(f"{servers}: {reason}")
                if not self._stopping.is_set():
                    self._status.waits(f"{servers}: {reason}; waiting")
                self._stopping.wait(0.5)
        finally:
            offsets.close()

    def _compare(self, watermarks: dict[int, Watermarks]) -> None:
        for partition, offset in self._files.next_offsets().items():
            end = watermarks[partition].high if partition in watermarks else 0
            if offset > end:
                raise CommandError(
                    f"{self._settings.out} has records up to offset {offset - 1} of "
                    f"{LOCATION}-{partition}, but the log ends at {end}: it is another log, or it "
                    "has lost its end. Name another folder with --out, or move this one away"
                )

    def _run_in(self, session: SparkSession) -> None:
        from spark.runtime.tasks import LocalEngine, ReplaceableEngine, SparkEngine

        engine = ReplaceableEngine(SparkEngine(session))
        try:
            self._start_upkeep(engine)
            try:
                self._repeat(lambda: self._run_watched(session))
            except Stalled as stalled:
                logger.error("%s; the history goes on with --engine arrow", stalled)
                with self._writing:
                    self._spark_may_write = False
                self._engine = "arrow"
                engine.current = LocalEngine(1)
                kill_session(session)
                # What this process has seen of the files is of its own batches.
                self._files.open()
                self._repeat(self._run_arrow_batches)
            self._end_places(engine)
        except StreamDied:
            # What it would be asked at its end may hang.
            kill_session(session)
            raise
        finally:
            close_session(session)

    def _run_arrow(self) -> None:
        from spark.runtime.tasks import LocalEngine

        engine = LocalEngine(1)
        self._start_upkeep(engine)
        self._repeat(self._run_arrow_batches)
        self._end_places(engine)

    def _run_arrow_batches(self) -> None:
        from spark.history.arrow import ArrowHistory

        history = ArrowHistory(
            self._settings.bootstrap_servers,
            LOCATION,
            self._storage,
            self._files,
            batch_rows=self._settings.batch_rows,
            on_batch=self._on_committed,
            watchdog=self._watchdog,
            written=self._written_by_spark(),
        )
        self._status.begins(history.start())
        self._report_ready()
        history.run(self._stopping, self._settings.trigger_s, once=self._settings.once)

    def _written_by_spark(self) -> dict[int, int] | None:
        from spark.history.spark_offsets import committed_offsets

        checkpoint = self._settings.checkpoint_in_out
        return None if checkpoint is None else committed_offsets(self._storage, checkpoint)

    def _start_upkeep(self, engine: Engine) -> None:
        if self._settings.places is not None and not self._settings.once:
            self._start(partial(self._keep_places, engine), "places", daemon=True)
        if self._settings.compact_interval_s and not self._settings.once:
            upkeep = PeriodicCompaction(
                self._settings.out,
                self._settings.compact_interval_s,
                self._settings.compact_settled_h,
                self._stopping,
                self._steps,
            )
            self._ending.append(self._start(upkeep.run, "upkeep", daemon=False))

    def _end_places(self, engine: Engine) -> None:
        settings = self._settings
        if settings.places is not None and settings.once and not self._stopping.is_set():
            self._write_places(engine)

    def _repeat(self, run: Callable[[], None]) -> None:
        """Run until the end of the log (`once`) or a stop; restart after failures.

        Raises Stalled if another engine is to go on, StreamDied if only a new process can.
        """
        failures = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            self._watchdog.advanced()
            self._status.started()
            try:
                run()
                if self._settings.once:
                    break
            except (Stalled, StreamDied):
                raise
            except Exception as error:
                if self._stopping.is_set():
                    break
                check_fatal(error)
                if self._settings.once or isinstance(error, CommandError):
                    raise CommandError(self._reason(error)) from error
                self._check_spark_runs(error)
                # A stream that ran for a minute is restarted at once.
                failures = 0 if time.monotonic() - started > 60 else failures + 1
                wait_s = _RESTART_WAIT_S[min(failures, len(_RESTART_WAIT_S) - 1)]
                logger.error(
                    "the stream ended, it starts again: %s",
                    self._reason(error),
                    exc_info=_ours(error),
                )
                self._status.failed(self._reason(error))
                self._check_stall()
                self._stopping.wait(wait_s)

    def _reason(self, error: Exception) -> str:
        """Return in one line what has gone wrong, with the history's place where it was that."""
        if isinstance(error, OSError) and error.filename is None:
            error = unavailable(self._storage.place, error)
        return reason_of(error)

    def _check_stall(self) -> None:
        """Raise Stalled if Spark has written nothing for too long, and arrow is to go on then."""
        if self._settings.on_stall != "arrow" or not self._spark_may_write:
            return
        reason = self._status.stalled()
        if reason is not None:
            raise Stalled(reason)

    def _check_spark_runs(self, error: Exception) -> None:
        """Raise CommandError if Spark's JVM has ended: nothing in this process can go on then."""
        status = jvm_end()
        if status is not None:
            raise CommandError(f"Spark's JVM has ended with status {status}") from error

    def _run_watched(self, session: SparkSession) -> None:
        """Run the query in a thread: what Spark is asked may hang for ever.

        It does so where Python does not start, which Spark waits for without a limit.
        """
        watched("query", partial(self._run_query, session), self._check_stall, 1.0)

    def _run_query(self, session: SparkSession) -> None:
        if self._settings.checkpoint_in_out is not None:
            self._status.begins(self._written_by_spark())
        self._status.in_phase("Spark has not started the stream yet")
        frame = read_landed(session, self._settings, self._storage)
        writer = (
            frame.writeStream.queryName("history")
            .option("checkpointLocation", self._settings.checkpoint_url)
            .foreachBatch(self._commit_batch)
        )
        if self._settings.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._settings.trigger_s} seconds")
        query = writer.start()
        self._report_ready()
        try:
            progress = QueryProgress(session, query, self._watchdog.advanced, self._status.in_phase)
            await_end(query, self._stopping, progress.look, once=self._settings.once)
        finally:
            if self._stopping.is_set():
                stop_query(query)

    def _report_no_more(self) -> None:
        # The supervisor ends a process that hangs so that it prints where its threads are.
        logger.error("a thread hangs: no more progress is reported to the supervisor")
        self._watchdog.close()

    def _write_report(self) -> None:
        """Say how the job is, for gateways of this machine."""
        if not self._storage.local or self._stopping.is_set():
            return
        report = JobReport(
            now_ms(),
            self._engine,
            self._wrote_ms,
            round(self._status.waiting_s(), 1),
            self._status.troubles,
        )
        before = self._reported
        if (
            before is None
            or report.time - before.time >= _REPORT_MS
            or (report.trouble, report.wrote) != (before.trouble, before.wrote)
        ):
            written = write_report(Path(self._storage.path), report)
            # What could not be written is tried again at the next look.
            self._reported = report if written else before

    def _report_ready(self) -> None:
        self._on_ready()
        self._watchdog.start()

    def _commit_batch(self, frame: DataFrame, _: int) -> None:
        started = time.monotonic()
        landed = [StagedFile(*row) for row in frame.collect()]
        with self._writing:
            if not self._spark_may_write:
                raise Stalled("another engine writes")
            self._on_committed(self._files.commit(landed), time.monotonic() - started)

    def _on_committed(self, committed: Committed, seconds: float) -> None:
        self._watchdog.advanced()
        self._status.committed()
        self.total.rows += committed.rows
        self.total.files += committed.files
        self.total.duplicates += committed.duplicates
        self.total.repeated += committed.repeated
        if committed.rows:
            self._wrote_ms = now_ms()
            self._new_rows.set()
        logger.info(
            "batch %d: %d fixes in %d files, %.2f s%s%s",
            self._batches,
            committed.rows,
            committed.files,
            seconds,
            f", {committed.duplicates} sent again left out" if committed.duplicates else "",
            f", {committed.repeated} written before" if committed.repeated else "",
        )
        self._batches += 1

    def _keep_places(self, engine: Engine) -> None:
        while not self._stopping.is_set():
            if self._new_rows.wait(1.0):
                self._new_rows.clear()
                with self._steps.doing("computing places", _PLACES_MAX_S):
                    self._write_places(engine)
                self._stopping.wait(self._settings.places_interval_s)

    def _write_places(self, engine: Engine) -> None:
        from spark.places.job import write_places
        from spark.places.topics import publish_places, read_edits

        assert self._settings.places is not None
        servers = self._settings.bootstrap_servers
        try:
            edits = read_edits(servers)
            written = write_places(engine, self._settings.out, self._settings.places, edits)
            publish_places(servers, self._settings.places, written.changed)
        except Exception as error:
            if not self._stopping.is_set():
                logger.error(
                    "places were not computed: %s", self._reason(error), exc_info=_ours(error)
                )
            # The next round is due even if no fix comes.
            self._new_rows.set()
            if self._settings.once:
                raise CommandError(self._reason(error)) from error


def read_landed(session: SparkSession, settings: HistorySettings, storage: Storage) -> DataFrame:
    """Return the stream of files that tasks have staged."""
    if settings.source == "jvm":
        return _read_landed_jvm(session, settings, storage)
    from spark.history.source import LandingSource

    session.dataSource.register(LandingSource)
    reader = session.readStream.format(LandingSource.name())
    for key, value in {
        "bootstrapServers": settings.bootstrap_servers,
        "topic": LOCATION,
        "maxRows": str(settings.batch_rows),
        "out": storage.path if storage.local else storage.url,
    }.items():
        reader = reader.option(key, value)
    return reader.load()


def _read_landed_jvm(
    session: SparkSession, settings: HistorySettings, storage: Storage
) -> DataFrame:
    from pyspark.errors import AnalysisException
    from pyspark.sql.pandas.types import from_arrow_schema

    from spark.fixes.staging import STAGED_SCHEMA
    from spark.history.jvm_source import landing_function

    reader = session.readStream.format("kafka")
    for key, value in {
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        "subscribe": LOCATION,
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": str(settings.batch_rows),
    }.items():
        reader = reader.option(key, value)
    try:
        frame = reader.load()
    except AnalysisException as error:
        raise CommandError(
            "--source jvm needs Spark's Kafka connector: name its jars with --jars (spark-sql-"
            "kafka-0-10, spark-token-provider-kafka-0-10, kafka-clients, commons-pool2) or its "
            "coordinates with --packages; --source python needs neither"
        ) from error
    return frame.select("partition", "offset", "key", "value").mapInArrow(
        landing_function(settings.bootstrap_servers, LOCATION, storage),
        from_arrow_schema(STAGED_SCHEMA),
    )


def _ours(error: Exception) -> Exception | None:
    """Return an error that only a mistake in this program can cause, for its traceback."""
    mistakes = AttributeError, AssertionError, LookupError, NameError, TypeError
    return error if isinstance(error, mistakes) else None
