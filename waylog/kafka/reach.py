"""Finds out whether a Kafka cluster is at an address, and if not, what is there instead.

librdkafka only distinguishes a refused connection from one that breaks. A user who starts a command
needs to know whether the port is wrong or a login is missing, so this module asks with requests of
its own.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from waylog.config import ConfigError, Endpoint, check_bootstrap_servers, parse_endpoint
from waylog.kafka.clients import LogUnreachable, client_config
from waylog.kafka.errors import error_text

#: Seconds to wait for a cluster; the message about a failed start comes within five seconds.
REACH_S: Final = 3.0
_PROBE_S: Final = 1.0
_LOGIN: Final = (
    "give the client's properties (security.protocol, sasl.*, ssl.*) with --command-config FILE "
    "where there is that option, or in the file that $WAYLOG_KAFKA_CONFIG names"
)
_HANGS_UP: Final = (
    "it hangs up without an answer; is the port right, and may this account connect "
    "(`waylog up --local-accounts`, the broker's local.accounts)?"
)
_NOT_KAFKA: Final = "what answers there does not speak Kafka's protocol; is the port right?"

# Two requests that every broker understands: ApiVersions 0 and Metadata 1, with a client id.
_CLIENT: Final = struct.pack(">h6s", 6, b"waylog")
_API_VERSIONS: Final = struct.pack(">hhi", 18, 0, 1) + _CLIENT
_METADATA: Final = struct.pack(">hhi", 3, 1, 2) + _CLIENT + struct.pack(">i", 0)
_HEAD: Final = struct.Struct(">ii")
_ANSWER_BYTES_MAX: Final = 100 * 1024 * 1024
_TLS_ALERT: Final = b"\x15\x03"


def connect_admin(
    bootstrap_servers: str, properties: Mapping[str, str] | None = None, client_id: str = "waylog"
) -> AdminClient:
    """Return an admin client of a cluster that has answered.

    `properties` are those with which the client logs in. Raises ConfigError for unknown
    properties, LogUnreachable with one line about the reason and the remedy.
    """
    check_bootstrap_servers(bootstrap_servers)
    _resolve(bootstrap_servers)
    said: list[str] = []
    options = client_config(bootstrap_servers, client_id) | dict(properties or {})
    try:
        admin = AdminClient(options | {"error_cb": lambda error: said.append(error.str())})
    except KafkaException as error:
        raise ConfigError(f"the client's properties: {error_text(error)}") from None
    try:
        admin.list_topics(timeout=REACH_S)
    except KafkaException as error:
        admin.poll(0.1)  # calls error_cb with librdkafka's errors
        why = next((text for text in said if "uthenticat" in text or "SASL" in text), None)
        if why is not None:
            raise LogUnreachable(f"{bootstrap_servers} does not let us in: {_brief(why)}") from None
        security = options.get("security.protocol", "plaintext").lower()
        words = ("SSL", "ertificate", "resolve")
        why = next((text for text in said if any(word in text for word in words)), None)
        if why is None and security == "plaintext":
            why = diagnose_endpoint(bootstrap_servers)
        raise LogUnreachable(
            f"no Kafka broker answers at {bootstrap_servers}: {_brief(why or error_text(error))}"
        ) from None
    return admin


def _endpoints(bootstrap_servers: str) -> list[Endpoint]:
    return [
        parse_endpoint(word.strip().rpartition("://")[2]) for word in bootstrap_servers.split(",")
    ]


def _resolve(bootstrap_servers: str) -> None:
    """Raise LogUnreachable if no name resolves: librdkafka would try again and again."""
    for endpoint in _endpoints(bootstrap_servers):
        try:
            socket.getaddrinfo(endpoint.host, endpoint.port)
        except (OSError, UnicodeError) as error:
            unknown, why = endpoint.host, error
        else:
            return
    reason = getattr(why, "strerror", None) or "no name of a host"
    raise LogUnreachable(
        f"no Kafka broker answers at {bootstrap_servers}: the name {unknown} cannot be resolved "
        f"({reason.lower()}); is --bootstrap-servers right?"
    )


def diagnose_endpoint(bootstrap_servers: str) -> str:
    """Return a sentence about the first of these addresses that does not refuse connections."""
    found = [_probe(endpoint) for endpoint in _endpoints(bootstrap_servers)[:3]]
    return next((text for text in found if "refused" not in text), found[0])


def _probe(endpoint: Endpoint) -> str:
    try:
        with socket.create_connection((endpoint.host, endpoint.port), _PROBE_S) as connection:
            connection.settimeout(_PROBE_S)
            answer = _ask(connection, _API_VERSIONS, 1)
            if answer is not None:
                return answer
            refusal = _ask(connection, _METADATA, 2)
            if refusal is None:
                return "it answers us but did not answer the client in time; is it overloaded?"
            return f"it wants clients to log in: {_LOGIN}"
    except TimeoutError:
        return "connections there are not answered; is a firewall in the way?"
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return f"{reason}; is `waylog up` running there? --bootstrap-servers names another address"


def _ask(connection: socket.socket, request: bytes, correlation_id: int) -> str | None:
    """Return None if the request is answered, else a sentence about what came instead."""
    connection.sendall(struct.pack(">i", len(request)) + request)
    received = b""
    try:
        while len(received) < _HEAD.size:
            more = connection.recv(4096)
            if not more:
                break
            received += more
            if received.startswith(_TLS_ALERT):
                break  # shorter than an answer's head, and some servers keep the connection open
    except TimeoutError:
        return "it accepts connections and says nothing; is that the port of a Kafka broker?"
    except ConnectionError:
        pass
    if received.startswith(_TLS_ALERT):
        return f"it wants TLS: {_LOGIN}"
    if not received:
        return _HANGS_UP
    if len(received) < _HEAD.size:
        return _NOT_KAFKA
    size, answered = _HEAD.unpack_from(received)
    if answered != correlation_id or not 0 < size < _ANSWER_BYTES_MAX:
        return _NOT_KAFKA
    while len(received) < 4 + size:
        more = connection.recv(65536)
        if not more:
            break
        received += more
    return None


def _brief(text: str) -> str:
    """Remove the address, which is named already, and the state of the connection."""
    text = text.rpartition("/bootstrap: ")[2]
    return text.partition(" (after ")[0].strip()
