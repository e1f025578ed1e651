"""Starts a platform in order, watches it until it is told to stop, and stops it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from waylog.cli import CommandError
from waylog.config import local_url
from waylog.kafka.errors import error_text
from waylog.process.background import spawn
from waylog.process.notify import notify_ready, notify_starting
from waylog.process.stop_signals import STOP_SIGNALS
from waylog.process.watchdog import EventLoopWatchdog
from waylog.supervision.announcement import DEMO_USER, tell, tell_ready
from waylog.supervision.platform_plan import PlatformPlan
from waylog.supervision.platform_processes import PlatformProcesses, waylog_command
from waylog.supervision.process_spec import StartError, SupervisionError
from waylog.supervision.supervisor import Supervisor

#: Seconds within which systemd hears of `waylog up` while that starts. The start may take longer:
#: each process has a limit of its own.
_SAYS_SO_S: Final = 60.0


class PlatformStart:
    """The processes of a plan, under a supervisor."""

    def __init__(self, plan: PlatformPlan) -> None:
        self._plan = plan
        self._processes = PlatformProcesses(plan)

    async def run(self) -> None:
        """Start in order, print the ready line, wait for the signal, stop in reverse order."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, stopping.set)
        supervisor = Supervisor(self._plan.data.root, self._plan.data.logs)
        self._note_history()
        starting = asyncio.create_task(self._start(supervisor))
        telling = spawn(_tell_of_start(), "telling of the start")
        ending = {
            asyncio.create_task(stopping.wait()),
            # The history job is started last and not waited for: its usage error may come later.
            asyncio.create_task(supervisor.wait_refused()),
        }
        watchdog: EventLoopWatchdog | None = None
        try:
            done, _ = await asyncio.wait({starting, *ending}, return_when=asyncio.FIRST_COMPLETED)
            if starting in done:
                starting.result()
                self._plan.data.http_url.write_text(local_url(self._plan.http), encoding="utf-8")
                await tell_ready(self._plan)
                telling.cancel()
                notify_ready()
                watchdog = EventLoopWatchdog(loop)
                done, _ = await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            tell("waylog stopping")
        except StartError as error:
            raise CommandError(str(error), error.status) from None
        except SupervisionError as error:
            raise CommandError(str(error)) from None
        finally:
            for task in (starting, telling, *ending):
                task.cancel()
            try:
                self._plan.data.http_url.unlink(missing_ok=True)
            finally:
                await supervisor.stop()
                await asyncio.gather(starting, telling, *ending, return_exceptions=True)
                if watchdog is not None:
                    watchdog.close()

    def _note_history(self) -> None:
        """Write down where the history is, for commands that compare with it."""
        history, noted = self._plan.history, self._plan.data.history_url
        if history is None:
            noted.unlink(missing_ok=True)
        else:
            place = history if "://" in history else str(Path(history).absolute())
            noted.write_text(place + "\n", encoding="utf-8")

    async def _start(self, supervisor: Supervisor) -> None:
        loop = asyncio.get_running_loop()
        if self._plan.brokers is not None:
            brokers = self._plan.brokers.specs()
            for spec in brokers:
                supervisor.start(spec)
            await asyncio.gather(*(supervisor.wait_ready(spec.name) for spec in brokers))
        preparing = loop.run_in_executor(None, self._prepare)
        await self._ensure_demo_user()
        await preparing
        specs = self._processes.beside_brokers()
        for spec in specs:
            supervisor.start(spec)
        await asyncio.gather(*(supervisor.wait_ready(spec.name) for spec in specs))
        if self._plan.history is not None:
            # A JVM takes ten seconds to start, and nothing that a phone needs depends on it.
            supervisor.start(self._processes.history_job(self._plan.history))

    def _prepare(self) -> None:
        from confluent_kafka import KafkaException

        from waylog.kafka.clients import LogUnreachable, ensure_topics

        try:
            ensure_topics(self._plan.bootstrap_servers)
        except (LogUnreachable, KafkaException) as error:
            raise StartError(f"the topics could not be created: {error_text(error)}") from error

    async def _ensure_demo_user(self) -> None:
        if self._plan.open:
            return
        data = self._plan.data
        words = ["--users", str(data.users), "--token-file", str(data.demo_token)]
        process = await asyncio.create_subprocess_exec(
            *waylog_command("user", "ensure", DEMO_USER, *words),
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await process.communicate()
        if process.returncode != 0:
            raise StartError(f"the demo user could not be made: {errors.decode().strip()}")


async def _tell_of_start() -> None:
    """Report that the start goes on, until cancelled; systemd ends it if that stops."""
    while True:
        notify_starting(_SAYS_SO_S)
        await asyncio.sleep(_SAYS_SO_S / 3)
