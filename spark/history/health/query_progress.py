"""Tells whether a streaming query of Spark advances, or hangs in a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class QueryProgress:
    """Calls `advanced` when a query has made a step, or has nothing to do.

    That its driver answers is no step: it does so while a batch hangs. Within a batch a step is its
    next phase, or the end of one of its tasks.
    """

    def __init__(
        self,
        session: SparkSession,
        query: StreamingQuery,
        advanced: Callable[[], object],
        in_phase: Callable[[str], object] = lambda _phase: None,
    ) -> None:
        """`in_phase` is told what Spark says that the query does."""
        self._query = query
        self._tracker = session.sparkContext.statusTracker()
        self._advanced = advanced
        self._in_phase = in_phase
        self._seen: tuple[str, int, int] | None = None

    def look(self) -> None:
        """Look whether there was a step since the last look."""
        status = self._query.status
        self._in_phase(f"Spark is at: {status['message']}")
        if not status["isTriggerActive"]:
            self._advanced()
            return
        # Other jobs of the session, for example of places, must not hide that the query hangs.
        newest = max(self._tracker.getJobIdsForGroup(str(self._query.runId)), default=-1)
        seen = (str(status["message"]), newest, self._ended_tasks(newest))
        if seen != self._seen:
            self._seen = seen
            self._advanced()

    def _ended_tasks(self, job: int) -> int:
        info = self._tracker.getJobInfo(job)
        if info is None:
            return 0
        stages = map(self._tracker.getStageInfo, info.stageIds)
        return sum(each.numCompletedTasks for each in stages if each is not None)
