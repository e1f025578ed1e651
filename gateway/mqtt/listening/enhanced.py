"""Enhanced authentication (MQTT 5.0, section 4.12): a mechanism may exchange several messages.

This module handles the packets; the caller provides the mechanisms. A connected client may
authenticate again, with the same mechanism and as the same user.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.mqtt.interfaces import Mechanism, Proof, ProofRefused
from gateway.mqtt.packets.packets import (
    CONTINUE_AUTHENTICATION,
    RE_AUTHENTICATE,
    Auth,
    Connect,
    Properties,
    PropertyId,
    ReasonCode,
)
from gateway.mqtt.sessions.link import CONNECTED

if TYPE_CHECKING:
    from gateway.mqtt.listening.authentication import Authentication
    from gateway.mqtt.listening.listener import MqttServer
    from gateway.mqtt.sessions.connection import Connection

logger = logging.getLogger(__name__)

#: Messages that a client may send for one authentication.
_STEPS_MAX: Final = 8


@dataclass(slots=True)
class _Client:
    """A client whose CONNECT has named a mechanism."""

    mechanism: Mechanism
    connect: Connect
    proof: Proof | None
    steps: int = 0
    task: asyncio.Task[None] | None = None


class EnhancedAuthentication:
    """The authentications that are under way, and the mechanism of each connected client."""

    def __init__(
        self,
        server: MqttServer,
        authentication: Authentication,
        mechanisms: Mapping[str, Mechanism],
    ) -> None:
        self._server = server
        self._authentication = authentication
        self._mechanisms = mechanisms
        self._clients: dict[Connection, _Client] = {}

    def begin(self, connection: Connection, packet: Connect, method: str) -> None:
        """Handle a CONNECT that names a mechanism."""
        mechanism = self._mechanisms.get(method)
        if mechanism is None:
            names = ", ".join(self._mechanisms) or "none"
            connection.refuse(
                ReasonCode.BAD_AUTHENTICATION_METHOD, f"mechanisms that are known here: {names}"
            )
            return
        client = self._clients[connection] = _Client(mechanism, packet, mechanism.begin())
        self._step(connection, client, packet.properties)

    def take(self, connection: Connection, packet: Auth) -> None:
        """Handle an AUTH packet."""
        client = self._clients.get(connection)
        properties = packet.properties or {}
        if client is None or properties.get(PropertyId.AUTHENTICATION_METHOD) != (
            client.mechanism.name
        ):
            connection.reject(ReasonCode.PROTOCOL_ERROR, "AUTH of another mechanism than CONNECT's")
            return
        if client.task is not None:
            connection.reject(ReasonCode.PROTOCOL_ERROR, "AUTH before the answer to the last")
            return
        if packet.reason_code == RE_AUTHENTICATE and connection.state == CONNECTED:
            if not self._authentication.may_guess(connection):
                return
            client.proof, client.steps = client.mechanism.begin(), 0
        elif packet.reason_code != CONTINUE_AUTHENTICATION or client.proof is None:
            connection.reject(ReasonCode.PROTOCOL_ERROR, "AUTH that nobody has asked for")
            return
        self._step(connection, client, properties)

    def forget(self, connection: Connection) -> None:
        """Discard the authentication of a connection that is over."""
        client = self._clients.pop(connection, None)
        if client is not None and client.task is not None:
            client.task.cancel()

    def _step(self, connection: Connection, client: _Client, properties: Properties | None) -> None:
        client.steps += 1
        if client.steps > _STEPS_MAX:
            connection.reject(ReasonCode.NOT_AUTHORIZED, "the proof takes too many steps")
            return
        data = (properties or {}).get(PropertyId.AUTHENTICATION_DATA, b"")
        assert isinstance(data, bytes)
        client.task = self._authentication.run(self._answer(connection, client, data), connection)

    async def _answer(self, connection: Connection, client: _Client, data: bytes) -> None:
        assert client.proof is not None
        server = self._server
        try:
            progress = await client.proof.step(data)
        except ProofRefused as refusal:
            client.task = None
            self._authentication.note_wrong_proof(connection, client.connect, str(refusal))
            connection.reject(ReasonCode.NOT_AUTHORIZED, str(refusal))
            server.wake()
            return
        except Exception:
            logger.exception("mechanism %s failed", client.mechanism.name)
            client.task = None
            connection.reject(ReasonCode.SERVER_UNAVAILABLE, "no proof is possible now")
            server.wake()
            return
        client.task = None
        method = client.mechanism.name
        if progress.identity is None:
            connection.challenge(method, progress.data)
        elif connection.state != CONNECTED:
            client.proof = None
            last: Properties = {
                PropertyId.AUTHENTICATION_METHOD: method,
                PropertyId.AUTHENTICATION_DATA: progress.data,
            }
            await self._authentication.admit(connection, client.connect, progress.identity, last)
        else:
            client.proof = None
            if not connection.authenticated_again(progress.identity, method, progress.data):
                connection.reject(ReasonCode.NOT_AUTHORIZED, "a proof for somebody else")
        if connection.owner is not None:
            connection.owner.process(server.time())
