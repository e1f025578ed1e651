"""The server's side of one MQTT connection, without I/O.

`receive_data` takes bytes and the time. `next_event` returns packets that the caller has to decide
about (a CONNECT to authenticate, a PUBLISH to store); all others are answered here. Bytes to send
collect until `take_outgoing`. A connection that has some, or is to be closed, adds itself to
`router.changed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from gateway.mqtt.packets.encoder import (
    encode_auth,
    encode_connack,
    encode_disconnect,
    encode_suback,
    encode_unsuback,
)
from gateway.mqtt.packets.packets import (
    CONNACK_3,
    CONTINUE_AUTHENTICATION,
    Auth,
    Connect,
    Disconnect,
    Properties,
    PropertyId,
    ReasonCode,
    RemoteProtocolError,
    Subscribe,
    Unsubscribe,
)
from gateway.mqtt.sessions.accounts import will_bytes
from gateway.mqtt.sessions.link import AUTHENTICATING, CHALLENGED, CLOSED, CONNECTED, Link

if TYPE_CHECKING:
    from gateway.mqtt.interfaces import Identity
    from gateway.mqtt.sessions.router import Router

#: Seconds after which a connection that is to end is cut if it does not take its last bytes.
LINGER_S: Final = 5.0
#: The cost of one topic filter, as a number of small packets.
_LOOKS_A_FILTER: Final = 32


class Connection(Link):
    """A connection with the handling of the rarer packets; `Link` handles the frequent ones."""

    __slots__ = ()

    _router: Router
    closing: tuple[int, str] | None

    def __init__(self, router: Router, owner: object, now: float) -> None:
        super().__init__(router, owner, now)
        router.timers.schedule(self, now + router.settings.connect_timeout_s)

    # --- the rarer packets ----------------------------------------------------------------------

    def _handle(self, packet: object, now: float) -> bool:
        """Handle a packet; return True if the caller has to decide about it."""
        if isinstance(packet, Connect):
            self.state = AUTHENTICATING
            self.version = packet.version
            return True
        if isinstance(packet, Subscribe):
            self._do(self._subscribe(packet, now), len(packet.subscriptions))
        elif isinstance(packet, Unsubscribe):
            self._do(self._unsubscribe(packet), len(packet.topic_filters))
        elif isinstance(packet, Disconnect):
            self._disconnected(packet)
        else:
            return True  # AUTH
        return False

    def _challenged(self, packet: object) -> bool:
        """Handle a packet during enhanced authentication; return True if it is an AUTH."""
        if isinstance(packet, Auth):
            self.state = AUTHENTICATING
            return True
        if not isinstance(packet, Disconnect):
            raise RemoteProtocolError(ReasonCode.PROTOCOL_ERROR, "AUTH was expected")
        self._end(ReasonCode.SUCCESS, "client disconnected")
        return False

    def _do(self, work: Iterator[None], filters: int) -> None:
        self.looks_left -= _LOOKS_A_FILTER * filters
        if filters > 1:
            self.begin(work)
        else:
            for _ in work:
                pass

    def _subscribe(self, packet: Subscribe, now: float) -> Iterator[None]:
        session = self.session
        assert session is not None
        identifiers = (packet.properties or {}).get(PropertyId.SUBSCRIPTION_IDENTIFIER)
        identifier = identifiers[0] if isinstance(identifiers, list) else 0
        assert isinstance(identifier, int)
        codes: list[int] = []
        fresh = []
        for request in packet.subscriptions:
            code, subscription = self._router.subscribe(session, request, identifier)
            codes.append(code)
            if subscription is not None:
                fresh.append(subscription)
            yield
            if session.connection is not self:
                return
        self.send(encode_suback(self.version, packet.packet_id, codes))
        for subscription in fresh:
            # The client is not read meanwhile, so that its end has not been noticed. It may come
            # back to its session; until then nothing is looked for.
            self._router.retained_delivery.send(subscription, None if self.has_gone() else now)
            yield
            if session.connection is not self:
                return

    def _unsubscribe(self, packet: Unsubscribe) -> Iterator[None]:
        session = self.session
        assert session is not None
        codes: list[int] = []
        for name in packet.topic_filters:
            codes.append(self._router.unsubscribe(session, name))
            yield
            if session.connection is not self:
                return
        self.send(encode_unsuback(self.version, packet.packet_id, codes))

    def _disconnected(self, packet: Disconnect) -> None:
        assert self.session is not None
        expiry = (packet.properties or {}).get(PropertyId.SESSION_EXPIRY_INTERVAL)
        if isinstance(expiry, int):
            if expiry and not self.session.expiry_interval_s:
                raise RemoteProtocolError(
                    ReasonCode.PROTOCOL_ERROR, "session expiry was 0 and can't be changed"
                )
            self.session.expiry_interval_s = min(expiry, self._router.settings.session_expiry_max_s)
        if packet.reason_code != ReasonCode.DISCONNECT_WITH_WILL:
            self.will = None
        self._end(ReasonCode.SUCCESS, "client disconnected")

    # --- decisions of the caller ----------------------------------------------------------------

    def challenge(self, method: str, data: bytes) -> None:
        """Send an AUTH that asks the client to continue its authentication (section 4.12)."""
        if self.state == AUTHENTICATING:
            self.state = CHALLENGED
        elif self.state != CONNECTED:
            return  # ended meanwhile
        self.send(encode_auth(CONTINUE_AUTHENTICATION, _proof(method, data)))

    def authenticated_again(self, identity: Identity, method: str, data: bytes) -> bool:
        """Finish a re-authentication; return False if it is for another user or device."""
        session = self.session
        if session is None or self.state != CONNECTED:
            return True  # ended meanwhile
        if (identity.user, identity.device) != (session.identity.user, session.identity.device):
            return False
        self._router.right_changes.identify(session, identity, self._last_received)
        self.route = None  # the rights to publish may have changed
        self.send(encode_auth(ReasonCode.SUCCESS, _proof(method, data)))
        return True

    def accept(
        self,
        packet: Connect,
        identity: Identity,
        now: float,
        *,
        assigned_client_id: str,
        proof: Properties | None = None,
    ) -> None:
        """Accept the CONNECT of an authenticated client.

        `assigned_client_id` is for a client without one. `proof` holds the properties of the
        mechanism's last message, which CONNACK carries.
        """
        if self.state != AUTHENTICATING:
            return  # ended meanwhile
        settings = self._router.settings
        assigned = not packet.client_id
        if assigned:
            packet.client_id = assigned_client_id
        self.keep_alive_s = packet.keep_alive
        longest = settings.keep_alive_max_s
        if packet.version == 5 and longest is not None and not 0 < packet.keep_alive <= longest:
            self.keep_alive_s = longest
        router = self._router
        size = will_bytes(packet.will)
        if size and not router.accounts.has_room(identity.user, size):
            router.counters["connects_beyond_share"] += 1
            self.refuse(ReasonCode.QUOTA_EXCEEDED, "your clients hold too much already")
            return
        if not router.accounts.connections.take(identity.user):
            router.counters["connects_beyond_share"] += 1
            self.refuse(ReasonCode.QUOTA_EXCEEDED, "too many connections of one user")
            return
        self.counted_for = identity.user
        self._apply_limits(packet.properties or {})
        self.session, present = self._router.connect(self, packet, identity, now)
        account = router.accounts.of(identity.user)
        self.publishes, self.turn = account.publishes, account.turn
        self.will = packet.will
        self.state = CONNECTED
        self._decoder.packet_bytes_max = settings.packet_bytes_max
        properties: Properties = {}
        if packet.version == 5:
            properties = {
                PropertyId.RECEIVE_MAXIMUM: settings.publishes_in_flight_max,
                PropertyId.MAXIMUM_PACKET_SIZE: settings.packet_bytes_max,
                PropertyId.TOPIC_ALIAS_MAXIMUM: settings.topic_aliases_max,
            }
            asked = (packet.properties or {}).get(PropertyId.SESSION_EXPIRY_INTERVAL, 0)
            if asked != self.session.expiry_interval_s:
                properties[PropertyId.SESSION_EXPIRY_INTERVAL] = self.session.expiry_interval_s
            if assigned:
                properties[PropertyId.ASSIGNED_CLIENT_IDENTIFIER] = packet.client_id
            if self.keep_alive_s != packet.keep_alive:
                properties[PropertyId.SERVER_KEEP_ALIVE] = self.keep_alive_s
            properties.update(proof or {})
        self.send(encode_connack(packet.version, present, ReasonCode.SUCCESS, properties))
        self._last_received = now
        self._router.timers.cancel(self)
        if self.keep_alive_s:
            self._router.timers.schedule(self, now + 1.5 * self.keep_alive_s)
        if present:
            self.session.resume(now)

    def _apply_limits(self, properties: Properties) -> None:
        for name, value in properties.items():
            if name == PropertyId.RECEIVE_MAXIMUM:
                assert isinstance(value, int)
                self.receive_maximum = value
            elif name == PropertyId.MAXIMUM_PACKET_SIZE:
                assert isinstance(value, int)
                self.packet_bytes_max = value
            elif name == PropertyId.TOPIC_ALIAS_MAXIMUM:
                assert isinstance(value, int)
                self.topic_aliases_max = min(value, self._router.settings.topic_aliases_max)

    def refuse(
        self, reason_code: ReasonCode, text: str, server_reference: str | None = None
    ) -> None:
        """Answer a CONNECT with a failure, and end the connection."""
        if self.state == CLOSED:
            return
        if self.version == 5:
            explained = _explained(text, server_reference)
            self.send(encode_connack(5, False, reason_code, explained))
        elif self.version:
            self.send(encode_connack(self.version, False, CONNACK_3.get(reason_code, 3)))
        self._end(reason_code, text)

    def close(
        self, reason_code: ReasonCode, text: str, server_reference: str | None = None
    ) -> None:
        """End the connection from the server's side; MQTT 5 clients receive the reason."""
        if self.state == CLOSED:
            return
        if self.state == CONNECTED and self.version == 5:
            self.send(encode_disconnect(reason_code, _explained(text, server_reference)))
        self._end(reason_code, text)

    def reject(self, reason_code: ReasonCode, text: str) -> None:
        """Refuse the client, or disconnect it if it has been accepted."""
        if self.state == CONNECTED:
            self.close(reason_code, text)
        else:
            self.refuse(reason_code, text)

    def _give_up(self) -> None:
        self.close(ReasonCode.SERVER_BUSY, "the log does not accept messages now")

    def _broken(self, error: RemoteProtocolError) -> None:
        if self.state == CONNECTED:
            self.close(error.reason_code, str(error))
            return
        self.version = self._decoder.version
        if error.reason_code == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
            self.version = 4  # clients of all versions can read its CONNACK
        elif error.reason_code == ReasonCode.MALFORMED_PACKET or (
            self.version < 5 and error.reason_code != ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        ):
            # MQTT 3 has no code for it. For a malformed CONNECT an answer is optional (section
            # 4.13.1), and the version in which the client could read it is not known.
            self.version = 0
        self.refuse(error.reason_code, str(error))

    def _end(self, reason_code: ReasonCode, text: str) -> None:
        self.state = CLOSED
        self.closing = (reason_code, text)
        self.change()

    # --- time -----------------------------------------------------------------------------------

    def timed_out(self, now: float) -> None:
        """Act on a deadline that may have passed; called for the timer wheel."""
        if self.state == CLOSED:
            self.abort = True
            self.change()
        elif self.state != CONNECTED:
            self.refuse(ReasonCode.SERVER_BUSY, "no CONNECT was completed in time")
        elif self.paused_since is not None:
            deadline = self.paused_since + self._router.settings.stalled_reader_timeout_s
            if deadline <= now:
                self.abort = True
                self.close(ReasonCode.QUOTA_EXCEEDED, "the client does not read")
            else:
                self._router.timers.schedule(self, deadline)
        elif self.keep_alive_s:
            # While the client was not read, it could not be heard.
            heard = now if self.unread or self.blocked else self._last_received
            deadline = heard + 1.5 * self.keep_alive_s
            if deadline <= now:
                self.close(ReasonCode.KEEP_ALIVE_TIMEOUT, "nothing came within 1.5 x keep-alive")
            else:
                self._router.timers.schedule(self, deadline)

    def lost(self, now: float) -> None:
        """Release what the connection holds; its transport is gone."""
        self.state = CLOSED
        self._router.timers.cancel(self)
        if self.counted_for is not None:
            self._router.accounts.connections.give_back(self.counted_for)
            self.counted_for = None
        self._router.connection_lost(self, now)


def _proof(method: str, data: bytes) -> Properties:
    return {
        PropertyId.AUTHENTICATION_METHOD: method,
        PropertyId.AUTHENTICATION_DATA: data,
    }


def _explained(text: str, server_reference: str | None) -> Properties:
    properties: Properties = {PropertyId.REASON_STRING: text}
    if server_reference is not None:
        properties[PropertyId.SERVER_REFERENCE] = server_reference
    return properties
