"""The execution of tasks: on Spark, or in processes of this machine.

A task is a picklable argument of a picklable function; larger data is exchanged through files.
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
    """The interface for running tasks."""

    def run(self, part: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """Call the function for each task; return the results in order."""


class SparkEngine:
    """An engine that runs each call as a Spark task; rows never pass through the JVM."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext

    def run(self, part: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """Call the function for each task; return the results in order."""
        if not tasks:
            return []
        results: list[Result] = self._context.parallelize(tasks, len(tasks)).map(part).collect()
        return results


class LocalEngine:
    """An engine that runs calls in processes of this machine, or in this one with one worker."""

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers or os.cpu_count() or 1

    def run(self, part: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """Call the function for each task; return the results in order."""
        workers = min(self._workers, len(tasks))
        if workers <= 1:
            return [part(task) for task in tasks]
        # Processes are spawned, because Arrow's threads would be missing in a forked child.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, context) as pool:
            return list(pool.map(part, tasks))


class ReplaceableEngine:
    """An engine in whose place another one can be put while it is used."""

    def __init__(self, engine: Engine) -> None:
        self.current = engine

    def run(self, part: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """Call the function for each task; return the results in order."""
        return self.current.run(part, tasks)


def open_engine(arguments: argparse.Namespace, stack: ExitStack, name: str) -> Engine:
    """Return the engine that the options `--engine`, `--master` and `--workers` select."""
    if arguments.engine == "arrow":
        return LocalEngine(arguments.workers)
    from spark.runtime.session import close_session, open_session

    session = open_session(name, master=arguments.master, planning_only=True)
    stack.callback(close_session, session)
    return SparkEngine(session)
