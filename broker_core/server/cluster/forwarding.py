"""Forwards to the active controller the requests that only it can answer (KIP-590).

A client may ask any broker. The request is forwarded unchanged, with the client's principal; the
controller checks what that principal may do.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Mapping, Sequence
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
from broker_core.protocol.primitives import RemoteProtocolError
from broker_core.security.principal import Principal
from broker_core.server.cluster.channel import ControllerChannel
from broker_core.server.network.network import Network
from broker_core.server.network.peer import decode_response, encode_request
from broker_core.server.network.request import AnyRequest, Request
from broker_core.server.network.session import ClientSession, ListenerSecurity

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


def forward(channel: ControllerChannel, request: AnyRequest) -> None:
    """Have the active controller answer; disconnect a client that gets no answer in time."""
    header = request.header
    frame = encode_request(
        header.api, header.version, header.correlation_id, request.client_id.encode(), request.body
    )

    def answered(answer: EnvelopeResponse | None) -> None:
        if answer is None or answer["error_code"] != errors.NONE:
            logger.warning("%s: no controller answers", header.api.name)
            request.disconnect()
            return
        data = bytes(answer["response_data"] or b"")
        request.reply_encoded([len(data).to_bytes(_LENGTH_BYTES, "big") + data])

    _send(channel, frame, request.principal, request.host, answered)


def _send(
    channel: ControllerChannel,
    frame: bytes,
    principal: Principal,
    host: str,
    answered: Callable[[EnvelopeResponse | None], None],
) -> None:
    body: EnvelopeRequest = {
        "request_data": frame[_LENGTH_BYTES:],
        "request_principal": str(principal).encode(),
        "client_host_address": _packed(host),
    }
    channel.send(ENVELOPE, body, answered, timeout_s=_TIMEOUT_S)


def create_topic(
    channel: ControllerChannel,
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
    frame = encode_request(CREATE_TOPICS, version, 0, b"", body)

    def opened(answer: EnvelopeResponse | None) -> None:
        results: Sequence[CreateTopicsResponseTopic] = ()
        if answer is not None and answer["error_code"] == errors.NONE:
            data = memoryview(bytes(answer["response_data"] or b""))
            results = decode_response(CREATE_TOPICS, version, data)["topics"]
        answered(results)

    _send(channel, frame, principal, "", opened)


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

    def when_lost(self, lost: Callable[[], None]) -> None:
        """See ResponseSink; the client is not connected to this broker."""


class ClientRequests(Protocol):
    """Answers the requests of clients, also those that other brokers forward."""

    network: Network

    def handle(self, request: AnyRequest) -> None:
        """Answer a request, now or later."""


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
