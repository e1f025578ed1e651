"""Authentication of clients: from a CONNECT packet to a session or a refusal."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sqlite3
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.limits.failed_logins import FailedLogins, TooManyFailedLogins
from gateway.limits.refusal_sampler import RefusalSampler
from gateway.mqtt.interfaces import Authenticator, Identity, Mechanism
from gateway.mqtt.journal.stored import session_key
from gateway.mqtt.listening.enhanced import EnhancedAuthentication
from gateway.mqtt.listening.tls import common_name
from gateway.mqtt.packets.packets import Auth, Connect, Properties, PropertyId, ReasonCode
from gateway.mqtt.sessions.claims import SessionBusy
from gateway.mqtt.sessions.connection import Connection
from gateway.mqtt.sessions.link import CONNECTED
from waylog.process.background import TaskSet

if TYPE_CHECKING:
    from gateway.mqtt.listening.listener import MqttServer

logger = logging.getLogger(__name__)


class Authentication:
    """Authenticates the clients of one server, and connects them to their sessions."""

    def __init__(
        self,
        server: MqttServer,
        authenticator: Authenticator,
        mechanisms: Sequence[Mechanism],
        failed_logins: FailedLogins,
        refusals: RefusalSampler,
    ) -> None:
        self._server = server
        self._authenticator = authenticator
        self._failed_logins = failed_logins
        self._refusals = refusals
        self._enhanced = EnhancedAuthentication(
            server, self, {each.name: each for each in mechanisms}
        )
        self._authentications = TaskSet("an authentication of an MQTT client")

    def close(self) -> None:
        """Cancel all authentications that are under way."""
        self._authentications.cancel()

    def forget(self, connection: Connection) -> None:
        """Discard the authentication state of a connection that is over."""
        self._enhanced.forget(connection)

    def go_on(self, connection: Connection, packet: Auth) -> None:
        """Handle an AUTH packet, the next step of an enhanced authentication."""
        self._enhanced.take(connection, packet)

    def begin(self, connection: Connection, packet: Connect) -> None:
        """Begin to authenticate a client by password, certificate or mechanism."""
        method = (packet.properties or {}).get(PropertyId.AUTHENTICATION_METHOD)
        if isinstance(method, str):
            if self.may_guess(connection):
                self._enhanced.begin(connection, packet, method)
            return
        self.run(self._authenticate(connection, packet), connection)

    def run(
        self, coroutine: Coroutine[Any, Any, None], connection: Connection
    ) -> asyncio.Task[None]:
        """Start a task for a connection; if it fails unexpectedly, the connection is closed."""
        return self._authentications.start(coroutine, partial(self._failed, connection))

    def _failed(self, connection: Connection, _: Exception) -> None:
        if connection.state == CONNECTED:
            connection.close(ReasonCode.UNSPECIFIED_ERROR, "")
        else:
            connection.refuse(ReasonCode.SERVER_UNAVAILABLE, "authentication is not possible now")
        self._server.wake()

    def may_guess(self, connection: Connection) -> bool:
        """Return whether the client's address has guesses left; if not, refuse the connection.

        Credentials that have not been verified yet count as guesses.
        """
        protocol = connection.owner
        if protocol is None:
            return True
        try:
            self._failed_logins.require_room(protocol.address)
        except TooManyFailedLogins as error:
            self._refuse_guess(connection, error)
            return False
        return True

    def _refuse_guess(self, connection: Connection, error: TooManyFailedLogins) -> None:
        self._server.counters["guesses_refused"] += 1
        connection.reject(ReasonCode.CONNECTION_RATE_EXCEEDED, str(error))
        self._server.wake()

    async def _authenticate(self, connection: Connection, packet: Connect) -> None:
        assigned = packet.client_id or _new_client_id()
        user = assigned if packet.username is None else packet.username
        identity: Identity | None = None
        protocol = connection.owner
        address = "" if protocol is None else protocol.address
        asked_at = self._server.router.rights.version
        try:
            name = None if packet.password else _certified_name(connection)
            password = (packet.password or b"").decode()
            if name is not None:
                identity = await self._authenticator.authenticate_certificate(name)
            else:
                identity = await self._authenticator.authenticate(user, password, address)
        except UnicodeDecodeError:
            pass
        except TooManyFailedLogins as error:
            self._refuse_guess(connection, error)
            return
        except Exception as error:
            if self._server.log_lines.take():
                logger.warning("nobody can be authenticated: %r", error)
            connection.refuse(ReasonCode.SERVER_UNAVAILABLE, "authentication is not possible now")
            self._server.wake()
            return
        if identity is None:
            self._refuse(connection, packet)
        else:
            await self._let_in(connection, packet, identity, asked_at, assigned)
        if connection.owner is not None:
            connection.owner.process(self._server.time())

    async def admit(
        self, connection: Connection, packet: Connect, identity: Identity, proof: Properties
    ) -> None:
        """Connect a client that a mechanism has authenticated.

        `proof` holds the properties of the mechanism's last message, which CONNACK carries.
        """
        await self._let_in(connection, packet, identity, -1, _new_client_id(), proof)

    async def _let_in(
        self,
        connection: Connection,
        packet: Connect,
        identity: Identity,
        asked_at: int,
        assigned: str,
        proof: Properties | None = None,
    ) -> None:
        """Connect an authenticated client after its session has been fetched from other workers.

        Messages that wait for the session are read step by step, so that a long queue does not
        block the event loop.
        """
        if not await self._claim(connection, identity, packet):
            return
        journal = self._server.router.journal
        if journal is None or packet.clean_start:
            self._accept(connection, packet, identity, asked_at, assigned, proof)
            return
        key = session_key(identity, packet.client_id)
        try:
            for _ in journal.prepare(key):
                await asyncio.sleep(0)
            self._accept(connection, packet, identity, asked_at, assigned, proof)
        finally:
            journal.unprepare(key)
            if self._server.router.live(key) is None:
                self._server.router.keep_arrived(key, self._server.time())

    def _accept(
        self,
        connection: Connection,
        packet: Connect,
        identity: Identity,
        asked_at: int,
        assigned: str,
        proof: Properties | None,
    ) -> None:
        """Accept the client with its current rights, which may be newer than version `asked_at`.

        From then on `MqttServer.rights_changed` updates the rights of the session.
        """
        try:
            now = self._server.router.rights.since(identity, asked_at)
        except sqlite3.Error as error:
            logger.warning("nobody can be let in: %r", error)
            connection.refuse(ReasonCode.SERVER_UNAVAILABLE, "rights cannot be read now")
            return
        if now is None:
            self._refuse(connection, packet)
        else:
            connection.accept(
                packet, now, self._server.time(), assigned_client_id=assigned, proof=proof
            )

    async def _claim(self, connection: Connection, identity: Identity, packet: Connect) -> bool:
        """Fetch the client's session from the worker that has it.

        Returns False, after a refusal with 0x89 (server busy), if the client has to come again.
        """
        if self._server.claim is not None and packet.client_id:
            try:
                key = session_key(identity, packet.client_id)
                await self._server.claim(key, packet.clean_start)
            except SessionBusy:
                connection.refuse(
                    ReasonCode.SERVER_BUSY, "the last connection is not settled yet: come again"
                )
                self._server.wake()
                return False
        return True

    def note_wrong_proof(self, connection: Connection, packet: Connect, reason: str) -> None:
        """Count a wrong proof as a wrong guess of its address, and record the refusal."""
        if connection.owner is not None:
            with suppress(TooManyFailedLogins):
                self._failed_logins.wrong(connection.owner.address)
        self.note_refusal(connection, packet, reason)

    def note_refusal(self, connection: Connection, packet: Connect, reason: str) -> None:
        """Count a refused CONNECT, and record it unless there are too many refusals."""
        self._server.counters["connects_refused"] += 1
        protocol = connection.owner
        address = "" if protocol is None else protocol.address
        if self._refusals.take(address):
            self._server.ingest.refused_connect(
                packet.username, packet.client_id, f"CONNECT: {reason}", address
            )

    def _refuse(self, connection: Connection, packet: Connect) -> None:
        reason = "unknown user or wrong password" if packet.username else "no user name was given"
        self.note_refusal(connection, packet, reason)
        connection.refuse(
            ReasonCode.BAD_USER_NAME_OR_PASSWORD if packet.username else ReasonCode.NOT_AUTHORIZED,
            reason,
        )


def _new_client_id() -> str:
    return f"auto-{secrets.token_hex(8)}"


def _certified_name(connection: Connection) -> str | None:
    """Return the common name of the client certificate that TLS has verified, if there is one."""
    protocol = connection.owner
    if protocol is None or protocol.transport is None:
        return None
    return common_name(protocol.transport.get_extra_info("peercert"))
