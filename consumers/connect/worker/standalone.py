"""A worker on its own: the herder, the worker, and what the REST interface asks of both."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from typing import Any, Final, TypeVar

from consumers.connect.configuration.connector_properties import CONNECTOR_CLASS
from consumers.connect.configuration.variables import Variables
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.herder.effects import Operation
from consumers.connect.herder.herder import Herder
from consumers.connect.herder.refusals import Refused
from consumers.connect.storage.configurations import MemoryConfigurationStore, Properties
from consumers.connect.storage.offsets import OffsetStore
from consumers.connect.storage.states import State, TaskId
from consumers.connect.storage.statuses import MemoryStatusStore
from consumers.connect.worker.plugin_table import WorkerPlugins
from consumers.connect.worker.worker import CONNECTOR_STOP_S, Worker
from consumers.connect.worker.worker_settings import WorkerSettings
from waylog.process.background import TaskSet

logger = logging.getLogger(__name__)

T = TypeVar("T")
#: Seconds after which a request is answered although its operation goes on, as in Kafka.
REQUEST_S: Final = 90.0


class TimedOut(Refused):
    """An operation takes longer than a request may; it goes on."""


class StandaloneWorker:
    """Connectors of one process. All methods are called on the event loop."""

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
        configurations = MemoryConfigurationStore()
        self._types: Final[dict[str | None, str]] = {}
        self.herder: Final = Herder(configurations, MemoryStatusStore(), worker_id, self._type_of)
        self.worker: Final = Worker(
            settings,
            variables,
            self.plugins,
            configurations,
            offsets,
            _Listener(self, asyncio.get_running_loop()),
        )
        self._locks: Final[weakref.WeakValueDictionary[str, asyncio.Lock]] = (
            weakref.WeakValueDictionary()
        )
        self._background: Final = TaskSet("operation of a connector")
        self.is_ready = False

    def _type_of(self, properties: Properties) -> str:
        name = properties.get(CONNECTOR_CLASS)
        if name not in self._types:
            self._types[name] = self.plugins.type_of(name)
        return self._types[name]

    async def run(self, connector: str, operation: Operation[T]) -> T:
        """Run an operation about a connector when earlier ones have ended; return its result.

        Raises what the operation raises, and TimedOut; then the operation goes on.
        """
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._background.start(self._settle(connector, operation, result))
        try:
            async with asyncio.timeout(REQUEST_S):
                return await asyncio.shield(result)
        except TimeoutError:
            raise TimedOut("Request timed out") from None

    def reset_topics(self, connector: str) -> None:
        """Forget the topics that a connector has used; they are noted again with new records."""
        self.herder.reset_topics(connector)
        self.worker.forget_topics(connector)

    def run_later(self, connector: str, operation: Operation[Any]) -> None:
        """Run an operation in the background; its errors are logged."""
        self._background.start(self._logged(connector, operation))

    async def close(self) -> None:
        """End all tasks and connectors, once operations that are under way have ended, or hang."""
        try:
            async with asyncio.timeout(CONNECTOR_STOP_S):
                await self._background.wait()
        except TimeoutError:
            await self._background.close()
        await self.worker.close()

    async def _settle(
        self, connector: str, operation: Operation[T], result: asyncio.Future[T]
    ) -> None:
        try:
            value = await self._drive(connector, operation)
        except Exception as error:
            result.set_exception(error)
            result.exception()  # whoever has asked may have gone
        except BaseException:
            result.cancel()
            raise
        else:
            result.set_result(value)

    async def _logged(self, connector: str, operation: Operation[Any]) -> None:
        try:
            await self._drive(connector, operation)
        except ConnectException as error:
            logger.error("connector %s: %s", connector, error)

    async def _drive(self, connector: str, operation: Operation[T]) -> T:
        lock = self._locks.setdefault(connector, asyncio.Lock())
        async with lock:
            try:
                effect = next(operation)
                while True:
                    try:
                        answer = await self.worker.carry_out(effect)
                    except Exception as error:
                        effect = operation.throw(error)
                    else:
                        effect = operation.send(answer)
            except StopIteration as stop:
                value: T = stop.value
                return value


class _Listener:
    """Tells the herder what threads report, on the event loop."""

    def __init__(self, worker: StandaloneWorker, loop: asyncio.AbstractEventLoop) -> None:
        self._worker: Final = worker
        self._loop: Final = loop

    def task_is(self, task: TaskId, state: State, trace: str = "") -> None:
        """See TaskListener."""
        self._call(self._worker.herder.task_is, task, state, trace)

    def topic_is_used(self, connector: str, topic: str) -> None:
        """See TaskListener."""
        if self._worker.settings.tracks_topics:
            self._call(self._worker.herder.topic_is_used, connector, topic)

    def connector_is(self, connector: str, state: State, trace: str = "") -> None:
        """See ConnectorListener."""
        self._call(self._worker.herder.connector_is, connector, state, trace)

    def work_has_changed(self, connector: str) -> None:
        """See ConnectorListener."""
        self._call(self._divide, connector)

    def _divide(self, connector: str) -> None:
        self._worker.run_later(connector, self._worker.herder.divide(connector))

    def _call(self, function: Any, *arguments: Any) -> None:
        # A thread that is left alone may outlast the event loop.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)
