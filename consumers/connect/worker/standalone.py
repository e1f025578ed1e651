"""A worker on its own: the herder, the worker, and what the REST interface asks of both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final, TypeVar

from consumers.connect.configuration.variables import Variables
from consumers.connect.herder.effects import Operation
from consumers.connect.herder.herder import Herder
from consumers.connect.observability.measures import Measure
from consumers.connect.storage.configurations import MemoryConfigurationStore
from consumers.connect.storage.offsets import OffsetStore
from consumers.connect.storage.statuses import MemoryStatusStore
from consumers.connect.worker.listener import HerderListener
from consumers.connect.worker.log_levels import LogLevels
from consumers.connect.worker.operations import OperationDriver
from consumers.connect.worker.plugin_table import WorkerPlugins
from consumers.connect.worker.worker import CONNECTOR_STOP_S, Worker
from consumers.connect.worker.worker_settings import WorkerSettings

T = TypeVar("T")


class StandaloneWorker:
    """Connectors of one process (`ConnectWorker`). All methods are called on the event loop."""

    def __init__(
        self,
        settings: WorkerSettings,
        variables: Variables,
        offsets: OffsetStore,
        *,
        worker_id: str,
        cluster_id: str,
    ) -> None:
        """`worker_id` is HOST:PORT of the REST interface, `cluster_id` that of Kafka."""
        self.settings: Final = settings
        self.plugins: Final = WorkerPlugins()
        self.cluster_id: Final = cluster_id
        self.levels: Final = LogLevels()
        configurations = MemoryConfigurationStore()
        self.herder: Final = Herder(
            configurations,
            MemoryStatusStore(),
            worker_id,
            self.plugins.type_of_configuration,
            self.plugins.version_of_configuration,
        )
        listener = HerderListener(
            lambda: self.herder,
            asyncio.get_running_loop(),
            self._divide,
            tracks_topics=settings.tracks_topics,
        )
        self.worker: Final = Worker(
            settings, variables, self.plugins, configurations, offsets, listener
        )
        self._driver: Final = OperationDriver(self.worker.carry_out)
        self.is_ready = False

    async def run(self, connector: str, operation: Operation[T]) -> T:
        """See ConnectWorker."""
        return await self._driver.run(connector, operation)

    async def accept(self, connector: str, operation: Operation[Any]) -> None:
        """See ConnectWorker."""
        self.run_later(connector, operation)

    def measures(self) -> Iterator[Measure]:
        """See ConnectWorker."""
        yield from self.worker.measures()
        yield from self.herder.measures()

    def run_later(self, connector: str, operation: Operation[Any]) -> None:
        """Run an operation in the background; its errors are logged."""
        self._driver.run_later(connector, operation)

    def reset_topics(self, connector: str) -> None:
        """See ConnectWorker."""
        self.herder.reset_topics(connector)
        self.worker.forget_topics(connector)

    async def set_levels(self, logger: str, level: str) -> None:
        """See ConnectWorker; one worker is the whole cluster."""
        self.levels.set(logger, level)

    async def close(self) -> None:
        """End all tasks and connectors, once operations that are under way have ended, or hang."""
        await self._driver.close(CONNECTOR_STOP_S)
        await self.worker.close()

    def _divide(self, connector: str) -> None:
        self.run_later(connector, self.herder.divide(connector))
