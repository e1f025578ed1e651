"""Runs topologies: creates their topics, and a worker for each of their processors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from consumers.streams.output_formats import OutputFormats
from consumers.streams.processor import (
    StreamProcessor,
    Topology,
    application_id,
    changelog_topic,
)
from consumers.streams.start_checks import check_outputs, client_id_of, warn_of_namesake
from consumers.streams.store import Store
from consumers.streams.stream_task import StreamTask
from consumers.worker.membership import TopicsDiffer, WorkerSettings
from consumers.worker.worker import Worker, describe
from waylog.history.erasures import ErasureLog
from waylog.kafka.clients import (
    LogForbidden,
    LogUnreachable,
    check_allowed,
    client_config,
    ensure_topics,
)
from waylog.kafka.topics import SOON_COMPACTED, Topic
from waylog.observability.interceptors import Telemetry
from waylog.process.threads import start_thread
from waylog.process.watchdog import Watchdog

logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.5
_ANSWER_S: Final = 2.0
_FOREVER_S: Final = float("inf")
_JOIN_S: Final = 30.0


@dataclass(frozen=True)
class TopologyRun:
    """What is needed to run topologies in one process; `run` is called in the main thread."""

    topologies: Sequence[Topology]
    bootstrap_servers: str
    settings: WorkerSettings
    telemetry: Telemetry
    on_ready: Callable[[], None]
    #: What tells a topology of a file from another one with its name; None if it is installed.
    origin: str | None = None
    #: Of topics whose records are no JSON; it is closed at the end.
    formats: OutputFormats | None = None

    def run(self, stopping: threading.Event, workers: list[Worker[Any]]) -> None:
        """Run until each of `workers`, which gets one for each processor, was told to stop.

        Raises TopicsDiffer, OutputMissing, LogForbidden for a missing right, and LogUnreachable.
        """
        watchdog = Watchdog()
        processors = [each for topology in self.topologies for each in topology.processors()]
        with ExitStack() as ending:
            if self.formats is not None:
                ending.callback(self.formats.close)
            topics = [each for topology in self.topologies for each in topology.topics()]
            self._ensure(topics, stopping, watchdog)
            check_outputs(self.bootstrap_servers, self.topologies)
            for processor in processors:
                ending.callback(processor.close)
                processor.start(self.bootstrap_servers, stopping)
                watchdog.alive()
            waiting = _Countdown(len(processors), self.on_ready)
            for processor in processors:
                self._create_changelog(processor, stopping, watchdog)
                task, erasures = self._task(processor)
                ending.callback(erasures.close)
                erasures.wait(_FOREVER_S, stopping=stopping, alive=watchdog.alive)
                workers.append(self._worker(processor, task, waiting.one_less))
            if stopping.is_set():
                return
            failures: list[Exception] = []

            def work(worker: Worker[Any]) -> None:
                try:
                    worker.run()
                except (TopicsDiffer, LogForbidden) as error:
                    failures.append(error)
                    stopping.set()
                    for each in workers:
                        each.stop()

            for processor in processors if self.origin is not None else ():
                application = application_id(processor)
                client_id = client_id_of(application, self.origin)
                warn_of_namesake(self.bootstrap_servers, application, client_id)
                watchdog.alive()
            others = [
                start_thread(
                    partial(work, worker), f"worker {number}", may_end=stopping.is_set, daemon=True
                )
                for number, worker in enumerate(workers[1:], 2)
            ]
            work(workers[0])
            for thread in others:
                thread.join(_JOIN_S)
            if failures:
                raise failures[0]
        for processor, worker in zip(processors, workers, strict=False):
            logger.info("topology %s stopped: %s", processor.name, describe(worker.counters))

    def _task(self, processor: StreamProcessor[Any]) -> tuple[StreamTask[Any], ErasureLog]:
        changelog = changelog_topic(application_id(processor))
        task: StreamTask[Any] = StreamTask(processor, changelog, self.formats)
        return task, ErasureLog(self.bootstrap_servers, task.erased)

    def _worker(
        self, processor: StreamProcessor[Any], task: StreamTask[Any], ready: Callable[[], None]
    ) -> Worker[Store[Any]]:
        application = application_id(processor)
        return Worker(
            self.bootstrap_servers,
            application,
            processor.topic,
            task,
            client_id=client_id_of(application, self.origin),
            telemetry=self.telemetry,
            # A supervisor tells why it has ended; what waits for a right looks as if it ran.
            settings=replace(self.settings, ends_if_forbidden=True),
            on_ready=ready,
        )

    def _ensure(
        self, topics: Sequence[Topic], stopping: threading.Event, watchdog: Watchdog
    ) -> None:
        """Create topics, as soon as the log can be reached; raises LogForbidden."""
        said = False
        while topics and not stopping.is_set():
            watchdog.alive()
            try:
                ensure_topics(self.bootstrap_servers, topics, timeout_s=_ANSWER_S)
                return
            except LogForbidden:
                raise
            except LogUnreachable as error:
                if not said:
                    logger.warning("%s; waiting for a broker", error)
                    said = True

    def _create_changelog(
        self, processor: StreamProcessor[Any], stopping: threading.Event, watchdog: Watchdog
    ) -> None:
        """Create a changelog with as many partitions as the topic that is read has."""
        topic = changelog_topic(application_id(processor))
        admin = AdminClient(client_config(self.bootstrap_servers, topic))
        said = False
        while not stopping.is_set():
            watchdog.alive()
            partitions = _partitions(admin, processor.topic)  # raises LogForbidden
            if partitions:
                config = {"cleanup.policy": "compact", **SOON_COMPACTED}
                self._ensure([Topic(topic, partitions, config)], stopping, watchdog)
                return
            if not said:
                logger.info("waiting for topic %s", processor.topic)
                said = True
            stopping.wait(_LOOK_S)


class _Countdown:
    """Calls a function once it was called as often as expected."""

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._left = count
        self._done = done
        self._lock = threading.Lock()

    def one_less(self) -> None:
        """Count a call; a worker calls this again for each of its sessions."""
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._done()


def _partitions(admin: AdminClient, topic: str) -> int:
    """Return the number of a topic's partitions, 0 while it does not exist or nobody answers.

    Raises LogForbidden.
    """
    try:
        found = admin.list_topics(topic, timeout=2.0).topics[topic]
    except KafkaException:
        return 0
    check_allowed(found.error, f"topic {topic}")
    return 0 if found.error is not None else len(found.partitions)
