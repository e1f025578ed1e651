"""Runs connectors and tasks: carries out what the herder has decided.

All methods are called on the event loop, which nothing here blocks: connectors and tasks have
threads of their own, and what else is a plugin's or waits for Kafka is done in a thread for once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException

from consumers.connect.configuration.connector_properties import CONNECTOR_CLASS
from consumers.connect.configuration.connector_validation import ConfigInfos, validate_connector
from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.configuration.topic_creation import TopicCreation, uses_topic_creation
from consumers.connect.configuration.variables import Resolved, Variables
from consumers.connect.converters.primitive_converters import ByteArrayConverter
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.errors.dead_letters import trace_of
from consumers.connect.errors.settings import ErrorSettings
from consumers.connect.herder.effects import (
    AlterSinkOffsets,
    AlterSourceOffsets,
    DivideWork,
    Effect,
    FenceProducers,
    FenceTasks,
    MoveConnector,
    MoveTasks,
    PublishTasks,
    ReadOffsets,
    Refresh,
    RequestRestart,
    StartConnector,
    StartTask,
    StopConnector,
    StopTasks,
    Validate,
    Write,
)
from consumers.connect.herder.offset_requests import sink_offset
from consumers.connect.herder.refusals import BadRequest
from consumers.connect.herder.task_configs import complete_tasks, tasks_max
from consumers.connect.observability.exposition import labelled
from consumers.connect.observability.measures import Measure, Startups
from consumers.connect.plugins.connector import SinkConnector, SourceConnector
from consumers.connect.plugins.registry import ConnectorClass, UnknownConnector
from consumers.connect.storage.configurations import ConfigurationStore, Properties
from consumers.connect.storage.offsets import OffsetStore, StoredOffsetReader, check_offset
from consumers.connect.storage.states import State, TaskId
from consumers.connect.tasks.client_properties import ClientProperties
from consumers.connect.tasks.converters import make_pipeline
from consumers.connect.tasks.exactly_once_source import (
    ExactlyOnceSourceTaskThread,
    transactional_id,
)
from consumers.connect.tasks.offset_committer import OffsetCommitter
from consumers.connect.tasks.sink_task_thread import SinkTaskThread
from consumers.connect.tasks.source_task_thread import SourceParts, SourceTaskThread
from consumers.connect.tasks.task_thread import TaskListener, TaskThread
from consumers.connect.tasks.transaction_boundary import transaction_boundary
from consumers.connect.worker.connector_thread import ConnectorListener, ConnectorThread
from consumers.connect.worker.file_room import FileRoom
from consumers.connect.worker.group_offsets import GroupOffsets
from consumers.connect.worker.in_thread import answer_of, in_thread
from consumers.connect.worker.override_policy import check_overrides
from consumers.connect.worker.plugin_table import WorkerPlugins, connector_plugin
from consumers.connect.worker.worker_erasures import WorkerErasures
from consumers.connect.worker.worker_settings import WorkerSettings
from waylog.kafka.errors import error_text
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.sealing.unopened import Unopened

logger = logging.getLogger(__name__)

#: Seconds that a connector has to stop, as in Kafka.
CONNECTOR_STOP_S: Final = 5.0
_FENCE_S: Final = 20.0
_METRICS: Final = "connect-worker-metrics"


class ExactlyOnceSources:
    """How sources of a group of workers write each record once."""

    def __init__(self, group_id: str, verify: Callable[[TaskId, Properties], None]) -> None:
        """`verify` raises ConnectException for a task that is not to run here as it is."""
        self._group_id: Final = group_id
        self.verify: Final = verify

    def transactional_id(self, task: TaskId) -> str:
        """Return the transactional id of a task."""
        return transactional_id(self._group_id, task.connector, task.task)


class WorkerListener(TaskListener, ConnectorListener, Protocol):
    """Is told about connectors and tasks, in any thread."""


class Worker:
    """The connectors and tasks that run in this process."""

    def __init__(
        self,
        settings: WorkerSettings,
        variables: Variables,
        plugins: WorkerPlugins,
        configurations: ConfigurationStore,
        offsets: OffsetStore,
        listener: WorkerListener,
        exactly_once: ExactlyOnceSources | None = None,
    ) -> None:
        """`exactly_once` is None for a worker whose sources write at least once."""
        self._settings: Final = settings
        self._variables: Final = variables
        self._plugins: Final = plugins
        self._configurations: Final = configurations
        self._offsets: Final = offsets
        self._listener: Final = listener
        self._exactly_once: Final = exactly_once
        self._connectors: Final[dict[str, ConnectorThread]] = {}
        self._tasks: Final[dict[TaskId, TaskThread]] = {}
        clients = ClientProperties(settings.bootstrap_servers, settings.properties, {})
        self._erasures: Final = (
            WorkerErasures(settings.bootstrap_servers, clients.security())
            if settings.honours_erasures
            else None
        )
        self._connector_startups: Final = Startups("connector")
        self._task_startups: Final = Startups("task")
        self._files: Final = FileRoom()
        self._committer: Final = OffsetCommitter()
        self._committer.start()

    async def carry_out(self, effect: Effect) -> Any:
        """Carry an effect out, and return its result; raises what it has failed by."""
        match effect:
            case Validate():
                return await self.validate(effect.properties)
            case Write():
                return await self._configurations.write(effect.change)
            case StartConnector():
                return await self._start_connector(effect)
            case StopConnector():
                return await self._stop_connector(effect.connector)
            case MoveConnector():
                return await self._move_connector(effect)
            case DivideWork():
                return await self._divide(effect)
            case StartTask():
                return await self._start_task(effect)
            case StopTasks():
                return await self._stop_tasks(effect.tasks, effect.within_s)
            case MoveTasks():
                for task, thread in self._tasks.items():
                    if task.connector == effect.connector:
                        thread.set_target(effect.target)
                return None
            case ReadOffsets():
                return await in_thread(lambda: self._read_offsets(effect), "read-offsets")
            case AlterSourceOffsets():
                return await in_thread(lambda: self._alter_source(effect), "alter-offsets")
            case AlterSinkOffsets():
                return await in_thread(lambda: self._alter_sink(effect), "alter-offsets")
            case FenceProducers():
                return await in_thread(lambda: self._fence(effect), "fence-tasks")
            case PublishTasks() | RequestRestart() | Refresh() | FenceTasks():
                raise AssertionError("only one of several workers has others")

    def forget_topics(self, connector: str) -> None:
        """Have tasks report the topics of their records again."""
        for task, thread in self._tasks.items():
            if task.connector == connector:
                thread.forget_topics()

    def measures(self) -> Iterator[Measure]:
        """Yield what the worker and its tasks have measured so far."""
        yield Measure(_METRICS, "connector-count", len(self._connectors))
        yield Measure(_METRICS, "task-count", len(self._tasks))
        yield from self._connector_startups.measures(_METRICS)
        yield from self._task_startups.measures(_METRICS)
        for task, thread in list(self._tasks.items()):
            labels = {"connector": task.connector, "task": str(task.task)}
            yield from labelled(thread.measures(), labels)

    async def close(self) -> None:
        """End all tasks and connectors."""
        await self._stop_tasks(list(self._tasks))
        await asyncio.gather(*(self._stop_connector(each) for each in list(self._connectors)))
        self._committer.close()
        if self._erasures is not None:
            await in_thread(self._erasures.close, "close-erasures")

    # ---- configurations ----

    async def validate(self, properties: Mapping[str, str | None]) -> ConfigInfos:
        """Return what there is to say about a configuration; raises Refused, ConnectException."""
        return await in_thread(lambda: self._validate(properties), "validate-connector")

    def _validate(self, properties: Mapping[str, str | None]) -> ConfigInfos:
        try:
            resolved = self._variables.resolve(properties)
            class_name = resolved.properties.get(CONNECTOR_CLASS)
            if class_name is None:
                names = ", ".join(sorted(properties))
                raise BadRequest(f"Connector config {{{names}}} contains no connector type")
            plugin = connector_plugin(self._class(resolved, properties))
            infos = validate_connector(
                properties,
                plugin,
                self._plugins.table,
                self._variables,
                exactly_once_enabled=self._exactly_once is not None,
                converters=self._settings.converters,
            )
        except ConfigException as error:
            raise ConnectException(str(error)) from error
        except UnknownConnector as error:
            raise BadRequest(str(error)) from error  # 500 before Kafka 4.3
        infos.name = class_name
        check_overrides(infos, resolved, self._settings.override_policy)
        return infos

    def _resolve(self, properties: Properties) -> dict[str, str]:
        """Return properties with variables replaced; raises ConfigException."""
        return _set(self._variables.resolve(properties))

    def _class(self, resolved: Resolved, properties: Mapping[str, str | None]) -> ConnectorClass:
        """Return a connector's class; raises UnknownConnector, which shows no secret."""
        try:
            return self._plugins.connectors.find(resolved.properties.get(CONNECTOR_CLASS) or "")
        except UnknownConnector as error:
            raw = properties.get(CONNECTOR_CLASS)
            text = resolved.without_secrets(str(error), CONNECTOR_CLASS, raw)
        raise UnknownConnector(text)

    def _clients(self, connector: Mapping[str, str]) -> ClientProperties:
        settings = self._settings
        return ClientProperties(settings.bootstrap_servers, settings.properties, connector)

    # ---- connectors ----

    async def _start_connector(self, effect: StartConnector) -> None:
        name = effect.connector
        try:
            properties, found = await in_thread(
                lambda: self._resolved_class(effect.properties), f"resolve-{name}"
            )
        except Exception as error:
            logger.exception("connector %s cannot be made", name)
            self._connector_startups.failures += 1
            self._listener.connector_is(name, State.FAILED, trace_of(error))
            raise ConnectException(f"Failed to start connector: {name}: {error}") from error
        self._connector_startups.successes += 1
        reader = StoredOffsetReader(self._offsets, name) if found.is_source else None
        thread = ConnectorThread(name, found.connector, properties, reader, self._listener)
        self._connectors[name] = thread
        await answer_of(thread.move(effect.target), f"starting connector {name}")

    def _resolved_class(self, properties: Properties) -> tuple[dict[str, str], ConnectorClass]:
        resolved = self._variables.resolve(properties)
        return _set(resolved), self._class(resolved, properties)

    async def _stop_connector(self, name: str) -> None:
        thread = self._connectors.pop(name, None)
        if thread is None:
            return
        try:
            async with asyncio.timeout(CONNECTOR_STOP_S):
                await asyncio.wrap_future(thread.stop())
        except TimeoutError:
            logger.error(
                "connector %s does not stop; it is left alone, and what it holds may be free only "
                "when this worker ends",
                name,
            )
            thread.cancel()

    async def _move_connector(self, effect: MoveConnector) -> bool:
        thread = self._connectors.get(effect.connector)
        if thread is None:
            return False
        try:
            await answer_of(thread.move(effect.target), f"moving connector {effect.connector}")
        except ConnectException as error:
            logger.error("%s", error)
            return False
        return True

    async def _divide(self, effect: DivideWork) -> list[dict[str, str]] | None:
        name = effect.connector
        thread = self._connectors.get(name)
        if thread is None:
            return None
        try:
            properties, found = await in_thread(
                lambda: self._resolved_class(effect.properties), f"resolve-{name}"
            )
            divided = thread.divide(tasks_max(properties))
            tasks = await answer_of(divided, f"dividing the work of connector {name}")
        except ConfigException as error:
            raise ConnectException(str(error)) from error
        if tasks is None:
            return None
        task_class = found.connector.task_class  # type: ignore[attr-defined]
        class_name = f"{task_class.__module__}.{task_class.__qualname__}"
        try:
            return complete_tasks(
                name, properties, getattr(task_class, "kafka_name", class_name), tasks
            )
        except ConnectException as error:
            await answer_of(thread.fail(error), f"failing connector {name}")
            raise

    # ---- tasks ----

    async def _start_task(self, effect: StartTask) -> bool:
        task = effect.task
        try:
            self._files.take()
            thread = await in_thread(lambda: self._make_task(effect), f"make-task-{task}")
        except Exception as error:
            logger.exception("task %s cannot be made", task)
            self._task_startups.failures += 1
            self._listener.task_is(task, State.FAILED, trace_of(error))
            return False
        self._task_startups.successes += 1
        self._tasks[task] = thread
        thread.start()
        if isinstance(thread, SourceTaskThread):
            self._committer.add(thread)
        return True

    def _make_task(self, effect: StartTask) -> TaskThread:
        settings = self._settings
        connector, found = self._resolved_class(effect.connector)
        properties = self._resolve(effect.properties)
        clients = self._clients(connector)
        pipeline = make_pipeline(settings.properties, connector)
        errors = ErrorSettings.of(connector, is_sink=not found.is_source)
        if issubclass(found.connector, SourceConnector):
            creates = settings.creates_topics and uses_topic_creation(connector)
            places = (effect.task, effect.target, self._listener)
            parts: SourceParts = {
                "task": found.connector.task_class(),
                "properties": properties,
                "clients": clients,
                "pipeline": pipeline,
                "errors": errors,
                "timing": settings.timing,
                "store": self._offsets,
                "creation": TopicCreation(connector) if creates else None,
            }
            if self._exactly_once is None:
                return SourceTaskThread(*places, **parts)
            interval_s = settings.timing.flush_interval_s
            return ExactlyOnceSourceTaskThread(
                *places,
                **parts,
                boundary=transaction_boundary(connector, interval_s, time.monotonic()),
                transactional=self._exactly_once.transactional_id(effect.task),
                verify=partial(self._exactly_once.verify, effect.task, effect.properties),
            )
        assert issubclass(found.connector, SinkConnector), "the registry has checked it"
        return SinkTaskThread(
            effect.task,
            effect.target,
            self._listener,
            task=found.connector.task_class(),
            properties=properties,
            clients=clients,
            pipeline=pipeline,
            errors=errors,
            timing=settings.timing,
            erasures=None if self._erasures is None else self._erasures.follow(),
            unopened=None
            if self._erasures is None or isinstance(pipeline.value, ByteArrayConverter)
            else Unopened(settings.bootstrap_servers, clients.security()),
        )

    def _fence(self, effect: FenceProducers) -> None:
        """Fence producers by their transactional ids; raises ConnectException."""
        assert self._exactly_once is not None
        clients = self._clients(self._resolve(effect.properties))
        for number in range(effect.tasks):
            name = self._exactly_once.transactional_id(TaskId(effect.connector, number))
            try:
                producer = LibrdkafkaProducer(clients.transactional_producer(f"fence-{name}", name))
                producer.init_transactions(_FENCE_S)
            except KafkaException as error:
                raise ConnectException(f"transactional id {name}: {error_text(error)}") from error

    async def _stop_tasks(self, tasks: Sequence[TaskId], within_s: float | None = None) -> None:
        threads = [thread for each in tasks if (thread := self._tasks.pop(each, None)) is not None]
        if not threads:
            return
        for thread in threads:
            thread.stop()
        timeout_s = self._settings.stop_timeout_s if within_s is None else within_s
        deadline = time.monotonic() + timeout_s

        def wait() -> list[TaskThread]:
            return [
                thread
                for thread in threads
                if not thread.wait(max(deadline - time.monotonic(), 0.0))
            ]

        for thread in await in_thread(wait, "stop-tasks"):
            logger.error("graceful stop of task %s failed; it is left alone", thread.task_id)
            thread.cancel()

    # ---- offsets, in threads ----

    def _group(self, name: str, connector: Mapping[str, str]) -> GroupOffsets:
        clients = self._clients(connector)
        return GroupOffsets(
            name, clients.group_id(name), clients.admin(f"connector-worker-adminclient-{name}")
        )

    def _read_offsets(self, effect: ReadOffsets) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        properties, found = self._resolved_class(effect.properties)
        if found.is_source:
            self._offsets.refresh()
            return self._offsets.all(effect.connector)
        committed = self._group(effect.connector, properties).read()
        return [sink_offset(*each) for each in sorted(committed.items())]

    def _alter_source(self, effect: AlterSourceOffsets) -> bool:
        name = effect.connector
        properties, found = self._resolved_class(effect.properties)
        connector = found.connector()
        assert isinstance(connector, SourceConnector), "the herder has asked for its type"
        offsets = effect.offsets
        if offsets is None:
            self._offsets.refresh()
            offsets = [(partition, None) for partition, _ in self._offsets.all(name)]
        for partition, offset in offsets:
            check_offset(partition)
            check_offset(offset)
        try:
            is_complete = connector.alter_offsets(properties, offsets)
        except NotImplementedError as error:
            raise _not_supported(name) from error
        if offsets:
            self._offsets.put(name, offsets)
        return is_complete

    def _alter_sink(self, effect: AlterSinkOffsets) -> bool:
        name = effect.connector
        properties, found = self._resolved_class(effect.properties)
        connector = found.connector()
        assert isinstance(connector, SinkConnector), "the herder has asked for its type"
        group = self._group(name, properties)
        offsets = effect.offsets
        try:
            is_complete = connector.alter_offsets(
                properties, dict.fromkeys(group.read()) if offsets is None else offsets
            )
        except NotImplementedError as error:
            raise _not_supported(name) from error
        if offsets is None:
            group.reset()
        else:
            group.alter(offsets)
        return is_complete


def _set(resolved: Resolved) -> dict[str, str]:
    """Return the properties that are not null."""
    return {name: text for name, text in resolved.properties.items() if text is not None}


def _not_supported(connector: str) -> ConnectException:
    return ConnectException(
        f"Failed to modify offsets for connector {connector} because it doesn't support external "
        "modification of offsets"
    )
