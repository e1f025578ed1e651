"""When a streaming query of Spark counts as one that advances; a stand-in says what Spark says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark.history.health.query_progress import QueryProgress


class Query:
    """A query, its session, and its tracker of jobs and stages."""

    runId = "run"  # noqa: N815 (Spark's name)

    def __init__(self) -> None:
        self.status: dict[str, Any] = {"message": "Processing new data", "isTriggerActive": True}
        self.jobs: list[int] = []
        self.ended_tasks = 0
        self.advanced = 0
        session: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: self))
        query: Any = self
        self._progress = QueryProgress(session, query, self._on_advanced)

    def _on_advanced(self) -> None:
        self.advanced += 1

    def getJobIdsForGroup(self, group: str) -> list[int]:
        assert group == self.runId
        return self.jobs

    def getJobInfo(self, job: int) -> Any:
        return SimpleNamespace(stageIds=[1, 2]) if job in self.jobs else None

    def getStageInfo(self, stage: int) -> Any:
        return SimpleNamespace(numCompletedTasks=self.ended_tasks) if stage == 2 else None

    def advances(self) -> bool:
        """Look, and tell whether there was a step since the last look."""
        before = self.advanced
        self._progress.look()
        return self.advanced > before


@pytest.fixture
def query() -> Query:
    query = Query()
    assert query.advances()
    assert not query.advances()
    return query


def test_a_query_that_has_nothing_to_do_does_not_hang(query: Query) -> None:
    query.status = {"message": "Waiting for data to arrive", "isTriggerActive": False}
    assert [query.advances() for _ in range(3)] == [True] * 3


def test_the_next_phase_of_a_batch_is_a_step(query: Query) -> None:
    query.status = {"message": "Writing offsets", "isTriggerActive": True}
    assert [query.advances() for _ in range(2)] == [True, False]


def test_another_job_of_a_batch_and_the_end_of_one_of_its_tasks_are_steps(query: Query) -> None:
    query.jobs = [3]
    assert [query.advances() for _ in range(2)] == [True, False]
    query.ended_tasks = 1
    assert [query.advances() for _ in range(2)] == [True, False]
    query.jobs = [4, 3]
    assert [query.advances() for _ in range(2)] == [True, False]
