"""Running the parts of a job: on Spark, or in processes of this machine.

A part is a picklable function of one picklable argument; data travels through files.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")


class Engine(Protocol):
    """Where the parts of a job run."""

    def run(self, part: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """The results, in the order of the tasks."""


class SparkEngine:
    """Each part is a task of Spark; the rows never travel through the JVM."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext

    def run(self, part: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """The results, in the order of the tasks."""
        if not tasks:
            return []
        results: list[Result] = self._context.parallelize(tasks, len(tasks)).map(part).collect()
        return results


class LocalEngine:
    """Each part runs in a process of this machine, or right here with one worker."""

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers or os.cpu_count() or 1

    def run(self, part: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """The results, in the order of the tasks."""
        workers = min(self._workers, len(tasks))
        if workers <= 1:
            return [part(task) for task in tasks]
        # Not forked: Arrow's threads would be missing in the child.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, context) as pool:
            return list(pool.map(part, tasks))


def open_engine(arguments: argparse.Namespace, stack: ExitStack, name: str) -> Engine:
    """The engine that a command's `--engine`, `--master` and `--workers` ask for."""
    if arguments.engine == "arrow":
        return LocalEngine(arguments.workers)
    from spark.runtime.session import close_session, open_session

    session = open_session(name, master=arguments.master, planning_only=True)
    stack.callback(close_session, session)
    return SparkEngine(session)
