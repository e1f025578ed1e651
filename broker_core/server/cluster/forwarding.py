"""Forwards to the active controller the requests that only it can answer (KIP-590).

A client may ask any broker. The request is forwarded with the client's principal; the controller
checks what that principal may do. It answers when it has decided: all clients of a broker share the
connection, whose answers come in order. Whoever wants to wait for new partitions waits here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from broker_core import errors
from broker_core.protocol.definitions import (
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_USER_SCRAM_CREDENTIALS,
    CREATE_ACLS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_TOPICS,
    DESCRIBE_QUORUM,
    ELECT_LEADERS,
    ENVELOPE,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_PARTITION_REASSIGNMENTS,
)
from broker_core.protocol.definitions.messages import decode_request
from broker_core.protocol.errors import RemoteProtocolError
from broker_core.security.principal import Principal
from broker_core.server.cluster.channel import ControllerChannel
from broker_core.server.cluster.new_partitions import (
    WhenKnown,
    new_partitions,
    waits_for_partitions,
    without_waiting,
)
from broker_core.server.network.network import Network
from broker_core.server.network.peer import decode_response, encode_request
from broker_core.server.network.request import AnyRequest, Request, client_party
from broker_core.server.network.session import ClientSession, ListenerSecurity
from waylog.network.party_queues import PartyQueues
from waylog.process.log_throttle import LogThrottle

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        CreateTopicsRequest,
        CreateTopicsResponseTopic,
        EnvelopeRequest,
        EnvelopeResponse,
    )

logger = logging.getLogger(__name__)

_LENGTH_BYTES: Final = 4
_TIMEOUT_S: Final = 20.0
#: Requests that the controller has at a time.
_UNDER_WAY_MAX: Final = 16

FORWARDED: Final = frozenset(
    api.key
    for api in (
        ALTER_CLIENT_QUOTAS,
        ALTER_CONFIGS,
        ALTER_PARTITION_REASSIGNMENTS,
        ALTER_USER_SCRAM_CREDENTIALS,
        CREATE_ACLS,
        CREATE_PARTITIONS,
        CREATE_TOPICS,
        DELETE_ACLS,
        DELETE_TOPICS,
        DESCRIBE_QUORUM,
        ELECT_LEADERS,
        INCREMENTAL_ALTER_CONFIGS,
        LIST_PARTITION_REASSIGNMENTS,
    )
)


@dataclass(slots=True, eq=False)
class _Forwarded:
    """A request that goes to the controller when it is its party's turn."""

    #: Encodes the request; None when nobody waits for an answer any more.
    encode: Callable[[], bytes] | None
    principal: Principal
    host: str
    answered: Callable[[EnvelopeResponse | None], None] | None
    #: Time of the event loop at which an answer is late.
    until: float

    def give_up(self) -> None:
        """Forget the request: its client is gone."""
        # Both refer to the request, which refers to this: only the garbage collector would find
        # them.
        self.encode = self.answered = None

    def end(self, answer: EnvelopeResponse | None) -> None:
        """Tell who waits, once."""
        answered = self.answered
        self.give_up()
        if answered is not None:
            answered(answer)


class Forwarding:
    """Sends requests of this broker's clients to the active controller.

    They have a connection of their own, and only a few are under way: thousands of one client keep
    neither this broker's heartbeats waiting nor for long those of another client.
    """

    def __init__(self, channel: ControllerChannel, when_known: WhenKnown) -> None:
        self._channel = channel
        self._when_known = when_known
        self._loop = asyncio.get_running_loop()
        self._waiting: PartyQueues[_Forwarded] = PartyQueues()
        self._under_way = 0
        self._is_sending = False
        self._unanswered = LogThrottle()

    def close(self) -> None:
        """Disconnect; clients that wait for an answer are disconnected."""
        self._channel.close()

    def forward(self, request: AnyRequest) -> None:
        """Have the active controller answer; disconnect a client that gets no answer in time."""
        header = request.header
        waits = waits_for_partitions(request)

        def encode() -> bytes:
            client_id = request.client_id.encode()
            body = without_waiting(request.body) if waits else request.body
            return encode_request(
                header.api, header.version, header.correlation_id, client_id, body
            )

        def answered(answer: EnvelopeResponse | None) -> None:
            request.on_close = None
            if answer is None or answer["error_code"] != errors.NONE:
                self._warn(header.api.name)
                request.disconnect()
                return
            data = memoryview(bytes(answer["response_data"] or b""))
            response = decode_response(header.api, header.version, data)
            # The controller counts what its clients change, but reads nothing from them itself.
            if throttle_ms := response.get("throttle_time_ms", 0):
                request.throttle(throttle_ms)

            def reply() -> None:
                request.reply(response)
                request.release()

            if waits:
                made = new_partitions(header.api.key, request.body, response)
                self._when_known(made, request.body["timeout_ms"], reply)
            else:
                reply()

        # What a client sends behind it stays with the client: a connection has one such request.
        request.hold()
        request.on_close = self._pass(encode, request.principal, request.host, answered).give_up

    def create_topic(
        self,
        name: str,
        partitions: int,
        factor: int,
        configs: Mapping[str, str],
        principal: Principal,
        answered: Callable[[Sequence[CreateTopicsResponseTopic]], None],
    ) -> None:
        """Have a topic created for `principal`; `answered` gets the results, [] if none arrive."""
        version = CREATE_TOPICS.versions[1]
        body: CreateTopicsRequest = {
            "topics": [
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": factor,
                    "assignments": [],
                    "configs": [{"name": key, "value": value} for key, value in configs.items()],
                }
            ],
            "timeout_ms": int(_TIMEOUT_S * 1000),
            "validate_only": False,
        }

        def opened(answer: EnvelopeResponse | None) -> None:
            results: Sequence[CreateTopicsResponseTopic] = ()
            if answer is not None and answer["error_code"] == errors.NONE:
                data = memoryview(bytes(answer["response_data"] or b""))
                results = decode_response(CREATE_TOPICS, version, data)["topics"]
            answered(results)

        encode = partial(encode_request, CREATE_TOPICS, version, 0, b"", body)
        self._pass(encode, principal, "", opened)

    def _pass(
        self,
        encode: Callable[[], bytes],
        principal: Principal,
        host: str,
        answered: Callable[[EnvelopeResponse | None], None],
    ) -> _Forwarded:
        forwarded = _Forwarded(encode, principal, host, answered, self._loop.time() + _TIMEOUT_S)
        self._waiting.add(client_party(principal, host), forwarded)
        self._send()
        return forwarded

    def _send(self) -> None:
        if self._is_sending:
            return  # an answer has come at once: this node's controller is active
        self._is_sending = True
        try:
            while self._waiting and self._under_way < _UNDER_WAY_MAX:
                _, forwarded = self._waiting.next()
                if forwarded.encode is not None:
                    self._send_one(forwarded, forwarded.encode)
        finally:
            self._is_sending = False

    def _send_one(self, forwarded: _Forwarded, encode: Callable[[], bytes]) -> None:
        left_s = forwarded.until - self._loop.time()
        if left_s <= 0 or self._channel.is_closed:
            forwarded.end(None)
            return
        body: EnvelopeRequest = {
            "request_data": encode()[_LENGTH_BYTES:],
            "request_principal": str(forwarded.principal).encode(),
            "client_host_address": _packed(forwarded.host),
        }

        def answered(answer: EnvelopeResponse | None) -> None:
            self._under_way -= 1
            try:
                forwarded.end(answer)
            finally:
                self._send()

        self._under_way += 1
        self._channel.send(ENVELOPE, body, answered, timeout_s=left_s)

    def _warn(self, api: str) -> None:
        unsaid = self._unanswered.count(self._loop.time())
        if unsaid is not None:
            before = f" ({unsaid} more requests before)" if unsaid else ""
            logger.warning("%s: no controller answers%s", api, before)


def _packed(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return b""


class _ForwardedSession(ClientSession):
    """The session of a client that is connected to another broker."""

    __slots__ = ("_forwarded",)

    def __init__(self, security: ListenerSecurity, principal: Principal) -> None:
        super().__init__(security, None)
        self._forwarded = principal

    @property
    def principal(self) -> Principal:
        """See ClientSession."""
        return self._forwarded

    @property
    def is_authenticated(self) -> bool:
        """See ClientSession; the other broker has authenticated the client."""
        return True


class _Envelope:
    """Returns the response of a forwarded request to the other broker; a ResponseSink."""

    sends_files = False

    def __init__(
        self, reply: Callable[[EnvelopeResponse], None], session: ClientSession, host: str
    ) -> None:
        self._reply = reply
        self.session = session
        self.peer_host = host

    def answered(self, request: AnyRequest) -> None:
        """See ResponseSink."""
        # There are no parts that are sent from files, because `sends_files` is False.
        parts = [
            part for part in request.parts or () if isinstance(part, bytes | bytearray | memoryview)
        ]
        data = b"".join(parts)
        self._reply({"response_data": data[_LENGTH_BYTES:], "error_code": errors.NONE})

    def abort(self) -> None:
        """See ResponseSink."""
        self._reply({"error_code": errors.ClusterAuthorizationFailed.code})

    close_when_answered = abort

    def mute(self, milliseconds: int) -> None:
        """See ResponseSink; the response tells the client to wait."""

    def hold(self) -> None:
        """See ResponseSink; other clients' requests come on the same connection."""

    release = hold

    def when_lost(self, lost: Callable[[], None]) -> None:
        """See ResponseSink; the client is not connected to this broker."""


class ClientRequests(Protocol):
    """Answers the requests of clients, also those that other brokers forward."""

    network: Network

    def handle(self, request: AnyRequest) -> None:
        """Answer a request, now or later."""

    def when_known(
        self, counts: Mapping[str, int], timeout_ms: int, then: Callable[[], None]
    ) -> None:
        """Call `then` when topics have this many partitions here that are open, or after a while.

        Such partitions have been decided on, but this broker may not have heard of them yet.
        """


def open_envelope(
    clients: ClientRequests, body: EnvelopeRequest, reply: Callable[[EnvelopeResponse], None]
) -> None:
    """Answer a request that a broker has forwarded to this node, the active controller's."""
    try:
        header, inner = decode_request(memoryview(bytes(body["request_data"])))
        principal = Principal.parse(bytes(body["request_principal"] or b"").decode())
    except (RemoteProtocolError, ValueError) as error:
        logger.warning("a broker passes on what cannot be read: %s", error)
        reply({"error_code": errors.InvalidRequest.code})
        return
    if header.api.key not in FORWARDED or inner is None:
        reply({"error_code": errors.InvalidRequest.code})
        return
    address = bytes(body["client_host_address"])
    host = str(ipaddress.ip_address(address)) if len(address) in {4, 16} else ""
    session = _ForwardedSession(clients.network.first_security, principal)
    clients.handle(Request(_Envelope(reply, session, host), header, inner))
