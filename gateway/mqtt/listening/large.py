"""Messages that take long to parse: another process parses them, and they are stored in steps.

The client's connection is not read meanwhile, so that its messages stay in order.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from gateway.bodies.parsing import Parsing, ParsingBusy, ParsingUnavailable, is_read_here
from gateway.mqtt.interfaces import Identity
from gateway.mqtt.packets.decoder import Publish
from gateway.mqtt.packets.packets import ReasonCode
from gateway.mqtt.publishing.ingest import Ingest, Submission
from gateway.mqtt.publishing.topic_route import TopicRoute
from gateway.mqtt.sessions.link import CONNECTED
from gateway.users.admission import QuotaExceeded
from waylog.process.background import TaskSet

if TYPE_CHECKING:
    from gateway.mqtt.sessions.connection import Connection
    from gateway.mqtt.sessions.shell import Shell

logger = logging.getLogger(__name__)

#: Seconds before a retry of a message that had to wait for others of its user.
_AGAIN_S: Final = 1.0


class LargeMessages:
    """Stores the large messages of one server."""

    def __init__(self, shell: Shell, ingest: Ingest, parsing: Parsing) -> None:
        self._shell = shell
        self._ingest = ingest
        self._parsing = parsing
        self._tasks = TaskSet("storing a large message")

    async def close(self) -> None:
        """Cancel the messages that are being parsed, and wait for their tasks to end."""
        await self._tasks.close()

    def is_large(self, route: TopicRoute, payload: bytes) -> bool:
        """Return whether a message takes long to parse."""
        return route.allowed and route.parse is not None and not is_read_here(payload)

    async def submit(self, identity: Identity, route: TopicRoute, payload: bytes) -> Submission:
        """Do what Ingest.submit does; raises QuotaExceeded or ParsingUnavailable."""
        return await self._ingest.submit_in_steps(identity, route, payload, self._parsing)

    def take(self, connection: Connection, packet: Publish, route: TopicRoute) -> None:
        """Store a PUBLISH, and then handle the next packets of its connection."""
        task = self._tasks.start(
            self._store(connection, packet, route), partial(self._failed, connection)
        )
        connection.held = (task, packet)

    def _failed(self, connection: Connection, _: Exception) -> None:
        connection.held = None
        if connection.state == CONNECTED:
            connection.close(ReasonCode.UNSPECIFIED_ERROR, "a message could not be stored")
        self._shell.wake()

    async def _store(self, connection: Connection, packet: Publish, route: TopicRoute) -> None:
        shell = self._shell
        assert connection.session is not None
        try:
            code, completions = await self.submit(
                connection.session.identity, route, packet.payload
            )
        except QuotaExceeded as error:
            connection.held = None
            shell.held.beyond_quota(connection, packet, error.retry_after_s, shell.time())
        except ParsingBusy:
            connection.held = None
            shell.held.hold(connection, packet, _AGAIN_S)
        except Exception as error:
            if not isinstance(error, ParsingUnavailable):
                logger.exception("a large message could not be stored")
            connection.held = None
            connection.fail(packet, shell.time())
        else:
            connection.held = None
            shell.publishes.answer_when_stored(connection, packet, code, completions, shell.time())
        if connection.state == CONNECTED and connection.owner is not None:
            connection.owner.process(shell.time())
        shell.wake()
