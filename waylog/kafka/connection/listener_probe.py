"""Finds out what listens at an address: a broker, by which security protocol, or what else.

A broker hangs up, or says something that is no answer, when a client speaks another protocol than
its listener; neither tells the client which one would be right. So this module asks with a request
that every listener of Kafka answers before a login, SaslHandshake: without TLS, then with it. It
sends no password, and trusts nothing that it hears beyond the words of a message.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from enum import Enum
from typing import Final, NamedTuple

from waylog.kafka.connection.sasl import readable
from waylog.kafka.protocol.error_codes import ErrorCode
from waylog.kafka.protocol.requests import (
    SASL_HANDSHAKE,
    Broker,
    MalformedAnswer,
    read_sasl_handshake,
    request,
    sasl_handshake,
)

#: Seconds for each of the two attempts.
ATTEMPT_S: Final = 1.0
_ANSWER_BYTES_MAX: Final = 64 * 1024
_TLS_ALERT: Final = b"\x15\x03"
_CLIENT: Final = b"waylog"
#: A mechanism that nobody offers: the broker's refusal names those that it offers.
_NO_MECHANISM: Final = "NONE"
_CORRELATION_ID: Final = 1


class Silence(Enum):
    """What is at an address instead of a broker's listener."""

    UNREACHABLE = "unreachable"
    SILENT = "silent"
    HANGS_UP = "hangs up"
    NOT_KAFKA = "not kafka"


class Listener(NamedTuple):
    """A broker's listener.

    `mechanisms` are those of its logins. `wants_certificate`: it lets no client in without a
    certificate, and does not say whether it wants a login too.
    """

    protocol: str
    mechanisms: tuple[str, ...] = ()
    wants_certificate: bool = False


#: What hangs up after the handshake of TLS, which it has answered: not every server tells why.
_WANTS_CERTIFICATE: Final = Listener("SSL", wants_certificate=True)


class _SpeaksTls(Exception):
    """The answer to a request without TLS is an alert of TLS."""


async def probe(broker: Broker, attempt_s: float = ATTEMPT_S) -> Listener | Silence:
    """Return what listens there, within two times `attempt_s`."""
    with suppress(_SpeaksTls):
        plain = await _attempt(broker, None, attempt_s)
        if plain is not Silence.HANGS_UP:
            return plain
    return await _attempt(broker, _trusting_context(), attempt_s)


def _trusting_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def _attempt(
    broker: Broker, tls: ssl.SSLContext | None, attempt_s: float
) -> Listener | Silence:
    try:
        async with asyncio.timeout(attempt_s):
            reader, writer = await asyncio.open_connection(*broker, ssl=tls)
    except TimeoutError:
        return Silence.UNREACHABLE if tls is None else Silence.SILENT
    except ssl.SSLError:
        return Silence.HANGS_UP
    except (OSError, UnicodeError):
        return Silence.UNREACHABLE if tls is None else Silence.HANGS_UP
    try:
        async with asyncio.timeout(attempt_s):
            parts = sasl_handshake(_NO_MECHANISM)
            writer.write(request(SASL_HANDSHAKE, _CORRELATION_ID, _CLIENT, parts))
            found = await _listener(reader, encrypted=tls is not None)
            return _WANTS_CERTIFICATE if found is Silence.HANGS_UP and tls is not None else found
    except TimeoutError:
        return Silence.SILENT
    except OSError:  # with TLS 1.3 an alert about the missing certificate may come here
        return _WANTS_CERTIFICATE if tls is not None else Silence.HANGS_UP
    finally:
        writer.transport.abort()


async def _listener(reader: asyncio.StreamReader, *, encrypted: bool) -> Listener | Silence:
    head = b""
    while len(head) < 4:
        more = await reader.read(4 - len(head))
        if not more:
            return Silence.NOT_KAFKA if head else Silence.HANGS_UP
        head += more
        # Shorter than the head of an answer, and some servers keep the connection open.
        if head.startswith(_TLS_ALERT) and not encrypted:
            raise _SpeaksTls
    size = int.from_bytes(head, "big", signed=True)
    if not 4 <= size <= _ANSWER_BYTES_MAX:
        return Silence.NOT_KAFKA
    try:
        if int.from_bytes(await reader.readexactly(4), "big", signed=True) != _CORRELATION_ID:
            return Silence.NOT_KAFKA
        error, mechanisms = read_sasl_handshake(await reader.readexactly(size - 4))
    except (asyncio.IncompleteReadError, MalformedAnswer):
        return Silence.NOT_KAFKA
    security = "SSL" if encrypted else "PLAINTEXT"
    if error == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        return Listener(f"SASL_{security}", tuple(map(readable, mechanisms)))
    return Listener(security)
