"""Runs the logic of a consumer group's member, at least once or exactly once.

While the broker is away, everything waits and nothing is lost. After an error that the clients
cannot survive, new clients (`session.py`) begin at the committed offsets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, Generic

from consumers.worker.delays import DelayedProcessor
from consumers.worker.membership import Counters, Membership, WorkerSettings
from consumers.worker.processor import Processor, StateT
from consumers.worker.results import SessionFailed
from consumers.worker.session import SESSIONS, Session
from waylog.kafka.clients import LogForbidden, LogUnreachable
from waylog.observability.interceptors import Telemetry

logger = logging.getLogger(__name__)

#: Seconds, beside the pause after it, that a failed session counts as trouble.
_FAILED_FOR_S: Final = 60.0


class Worker(Generic[StateT]):
    """A member of a consumer group. `run` is called in one thread; `stop` may be called in any."""

    def __init__(
        self,
        bootstrap_servers: str,
        group: str,
        topic: str,
        processor: Processor[StateT],
        *,
        client_id: str,
        telemetry: Telemetry,
        settings: WorkerSettings | None = None,
        delayed: DelayedProcessor[StateT] | None = None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._membership = Membership(
            bootstrap_servers,
            group,
            topic,
            processor,
            client_id,
            telemetry,
            settings or WorkerSettings(),
            on_ready,
            delayed,
        )

    @property
    def counters(self) -> Counters:
        """The counters since the start."""
        return self._membership.counters

    def stop(self) -> None:
        """Finish the current batch, commit and leave the group. A signal handler may call it."""
        self._membership.stopping.set()

    def run(self) -> None:
        """Consume until `stop`.

        Raises TopicsDiffer, LogForbidden if the settings say so, and ConfigError for a master key
        that is missing or wrong.
        """
        settings, stopping = self._membership.settings, self._membership.stopping
        pause_s = settings.restart_pause_s
        while not stopping.is_set():
            self.counters.sessions += 1
            started = time.monotonic()
            try:
                Session(self._membership).run()
            except (SessionFailed, LogUnreachable) as error:
                if stopping.is_set():
                    logger.warning("stopped: %s", error)
                    return
                if settings.ends_if_forbidden and isinstance(error.__cause__, LogForbidden):
                    raise error.__cause__ from None
                self._membership.contact.silent()
                # Only offsets whose results are stored were committed: new clients begin there.
                if time.monotonic() - started > settings.restart_pause_s_max:
                    pause_s = settings.restart_pause_s
                logger.error("starting again in %.0f s: %s", pause_s, error)
                self._membership.status.trouble(SESSIONS, str(error), pause_s + _FAILED_FOR_S)
                self._membership.watchdog.wait(stopping, pause_s)
                pause_s = min(2 * pause_s, settings.restart_pause_s_max)


def describe(counters: Counters) -> str:
    """Return one line of totals, for the end of a process."""
    per_record = counters.cpu_s * 1e6 / counters.records if counters.records else 0.0
    return (
        f"{counters.records} records, {counters.results} results in {counters.batches} batches, "
        f"{per_record:.1f} us CPU a record"
    )
