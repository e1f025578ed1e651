"""Will messages: stored like other messages, then delivered to subscribers."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from gateway.bodies.parsing import ParsingUnavailable
from gateway.mqtt.interfaces import Completion
from gateway.mqtt.listening.large import LargeMessages
from gateway.mqtt.packets.message import message_of
from gateway.mqtt.packets.packets import ReasonCode
from gateway.mqtt.publishing.completions import AllOf, has_failed
from gateway.mqtt.publishing.ingest import Ingest, Submission
from gateway.mqtt.publishing.topic_route import TopicRoute
from gateway.mqtt.sessions.router import Router, WillDue
from gateway.users.admission import QuotaExceeded
from waylog.process.background import TaskSet

if TYPE_CHECKING:
    from gateway.mqtt.sessions.shell import Shell

logger = logging.getLogger(__name__)


class Wills:
    """Publishes the wills of one server."""

    def __init__(
        self, shell: Shell, router: Router, ingest: Ingest, large: LargeMessages | None
    ) -> None:
        self._shell = shell
        self._router = router
        self._ingest = ingest
        self._large = large
        self._reading = TaskSet("reading a large will")

    @property
    def pending(self) -> bool:
        """Return whether large wills are being parsed."""
        return bool(self._reading)

    def publish(self, until: float) -> None:
        """Store wills that are due until time `until` (s), but at least one."""
        wills = self._router.wills
        done = 0
        while done < len(wills) and (not done or self._shell.time() < until):
            self._publish(wills[done])
            done += 1
        del wills[:done]

    def _publish(self, due: WillDue) -> None:
        will = due.will
        self._router.counters["wills"] += 1
        route = self._ingest.route(due.identity, will.topic)
        if self._large is not None and self._large.is_large(route, will.payload):
            self._reading.start(self._read(due, route, self._large))
            return
        try:
            submission = self._ingest.submit(due.identity, route, will.payload, retain=will.retain)
            self._submitted(due, submission)
        except QuotaExceeded:
            self._router.counters["wills_beyond_quota"] += 1

    async def _read(self, due: WillDue, route: TopicRoute, large: LargeMessages) -> None:
        try:
            self._submitted(due, await large.submit(due.identity, route, due.will.payload))
        except QuotaExceeded:
            self._router.counters["wills_beyond_quota"] += 1
        except ParsingUnavailable as error:
            self._router.counters["appends_failed"] += 1
            logger.warning("a will could not be read: %s", error)
        except Exception:
            logger.exception("a will could not be stored")
        self._shell.wake()

    def _submitted(self, due: WillDue, submission: Submission) -> None:
        code, completions = submission
        if completions:
            AllOf(completions).add_done_callback(partial(self._stored, due, code))
        elif code == ReasonCode.SUCCESS:
            self._forward(due)

    def _stored(self, due: WillDue, code: int, completion: Completion) -> None:
        if has_failed(completion):
            self._router.counters["appends_failed"] += 1
        elif code == ReasonCode.SUCCESS:
            self._forward(due)
            self._shell.wake()

    def _forward(self, due: WillDue) -> None:
        will, now = due.will, self._shell.time()
        message = message_of(will.topic, will.payload, will.qos, will.retain, will.properties, now)
        self._router.publish(message, None, now, due.identity.user)
