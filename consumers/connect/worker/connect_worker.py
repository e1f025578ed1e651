"""What the REST interface asks of a worker, whether it is alone or one of several."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from consumers.connect.herder.effects import Operation
from consumers.connect.herder.herder import Herder
from consumers.connect.observability.measures import Measure
from consumers.connect.worker.log_levels import LogLevels
from consumers.connect.worker.plugin_table import WorkerPlugins
from consumers.connect.worker.worker import Worker
from consumers.connect.worker.worker_settings import WorkerSettings

T = TypeVar("T")


class ConnectWorker(Protocol):
    """A worker. All methods are called on the event loop."""

    @property
    def settings(self) -> WorkerSettings:
        """Its properties."""

    @property
    def plugins(self) -> WorkerPlugins:
        """The classes that it has."""

    @property
    def cluster_id(self) -> str:
        """The id of the Kafka cluster."""

    @property
    def herder(self) -> Herder:
        """Answers questions, and makes operations."""

    @property
    def worker(self) -> Worker:
        """Validates configurations."""

    @property
    def levels(self) -> LogLevels:
        """The levels of its loggers."""

    @property
    def is_ready(self) -> bool:
        """Tell whether the worker has started."""

    def measures(self) -> Iterable[Measure]:
        """Return what the worker, its connectors and tasks have measured so far."""

    async def run(self, connector: str, operation: Operation[T]) -> T:
        """Run an operation about a connector; return its result.

        Raises what the operation raises, and TimedOut; then the operation goes on.
        """

    async def accept(self, connector: str, operation: Operation[Any]) -> None:
        """See to it that an operation is run, now or later; raises ConnectException."""

    def reset_topics(self, connector: str) -> None:
        """Forget the topics that a connector has used; they are noted again with new records."""

    async def set_levels(self, logger: str, level: str) -> None:
        """Set the level of a logger on all workers; raises ConnectException."""
