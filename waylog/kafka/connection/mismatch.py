"""Says why a client and a broker do not come together, and what to do about it.

`explain` takes the error of a connection that failed. Where the error alone does not tell, for a
broker hangs up on whoever speaks another protocol than its listener, it asks the listener.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple

from waylog.kafka.connection.listener_probe import ATTEMPT_S, Listener, Silence, probe
from waylog.kafka.connection.sasl import LoginRefused, LoginUnwanted
from waylog.kafka.connection.security import ConnectionSecurity
from waylog.kafka.protocol.requests import Broker

#: Brokers that are asked at the same time.
_AT_ONCE_MAX: Final = 8
_HANGS_UP: Final = (
    "it hangs up without an answer; is the port right, and may this account connect "
    "(`waylog up --local-accounts`, the broker's local.accounts)?"
)
#: What is there when no broker speaks.
_SILENCES: Final = {
    Silence.UNREACHABLE: "connections there are not answered; is a firewall in the way?",
    Silence.SILENT: "it accepts connections and says nothing; is that the port of a Kafka broker? "
    "If it is, the broker hangs.",
    Silence.HANGS_UP: _HANGS_UP,
    Silence.NOT_KAFKA: "what answers there does not speak Kafka's protocol; is the port right?",
}
_CLIENT_CERTIFICATE: Final = (
    "the broker wants a certificate of every client, and this client shows none, or one that the "
    "broker does not trust: name one with ssl.keystore.location (ssl.certificate.location and "
    "ssl.key.location)"
)
_NOT_YET_VALID, _EXPIRED, _REVOKED = 9, 10, 23
_WRONG_NAMES: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH and ..._IP_ADDRESS_...
_CERTIFICATES: Final = {
    _NOT_YET_VALID: "the broker's certificate is not valid yet: are the clocks of both machines "
    "right?",
    _EXPIRED: "the broker's certificate has expired: renew it on the broker "
    "(ssl.keystore.location), and look at the clock of this machine",
    _REVOKED: "the broker's certificate is revoked: the broker needs another one",
}


class Explanation(NamedTuple):
    """Why a connection failed.

    `certain`: the two do not fit each other, and will not before somebody changes something.
    """

    text: str
    certain: bool


async def explain(
    error: Exception, broker: Broker, security: ConnectionSecurity, probe_s: float = ATTEMPT_S
) -> Explanation:
    """Explain the error of BrokerConnection's `connect` or `ask`, within two times `probe_s`."""
    if isinstance(error.__cause__, ssl.SSLError):
        # With TLS 1.3 a broker refuses a client's certificate only after the handshake.
        error = error.__cause__
    found = _of_error(error, broker)
    if found is not None:
        return _with_place(found, security)
    listener = await probe(broker, probe_s)
    if isinstance(listener, Silence):
        # A broker that comes up or goes down may hang up too, and `local.accounts` may change.
        return Explanation(_SILENCES[listener], certain=False)
    text = _difference(listener, security)
    if text is not None:
        return _with_place(Explanation(text, certain=True), security)
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return Explanation(f"TLS fails: {_reason(error)}", certain=True)
    if isinstance(error, TimeoutError) and security.login is not None:
        return Explanation(
            "it does not answer the login in time; it may be overloaded, and some brokers answer a "
            "wrong password late: are sasl.username and sasl.password right?",
            certain=False,
        )
    return Explanation(
        "it answers us but did not answer the client in time; is it overloaded?", certain=False
    )


def _with_place(explanation: Explanation, security: ConnectionSecurity) -> Explanation:
    """Say where the properties are that do not fit."""
    if not explanation.certain:
        return explanation
    return explanation._replace(text=f"{explanation.text}; {security.where}")


async def explain_all(
    bootstrap_servers: str,
    failures: Mapping[Broker, Exception],
    security: ConnectionSecurity,
    probe_s: float = ATTEMPT_S,
) -> Explanation:
    """Explain the failure that tells most, in a sentence that names the address."""
    chosen = list(failures.items())[:_AT_ONCE_MAX]
    explained = await asyncio.gather(
        *(explain(error, broker, security, probe_s) for broker, error in chosen)
    )
    index = min(range(len(chosen)), key=lambda index: _rank(explained[index], chosen[index][1]))
    broker, (text, certain) = chosen[index][0], explained[index]
    if certain:
        return Explanation(f"{broker.host}:{broker.port} does not let us in: {text}", certain)
    return Explanation(f"no Kafka broker answers at {bootstrap_servers}: {text}", certain)


def _rank(explanation: Explanation, error: Exception) -> int:
    """Prefer what is certain, then brokers that are there and do not answer."""
    if explanation.certain:
        return 0
    if isinstance(error, ConnectionRefusedError):
        return 2
    return 3 if isinstance(error, socket.gaierror | UnicodeError) else 1


def _of_error(error: Exception, broker: Broker) -> Explanation | None:
    """Explain an error that tells enough by itself."""
    if isinstance(error, LoginUnwanted):
        return None  # the listener says with which protocol it would do without
    if isinstance(error, LoginRefused):
        return Explanation(str(error), certain=True)
    if isinstance(error, ssl.SSLCertVerificationError):
        return Explanation(_certificate(error, broker), certain=True)
    if isinstance(error, ssl.SSLError) and _is_about_our_certificate(error):
        return Explanation(_CLIENT_CERTIFICATE, certain=True)
    if isinstance(error, socket.gaierror | UnicodeError):
        reason = (getattr(error, "strerror", None) or "no name of a host").lower()
        return Explanation(
            f"the name {broker.host} cannot be resolved ({reason}); is --bootstrap-servers right?",
            certain=False,
        )
    if isinstance(error, ssl.SSLError | ConnectionError | TimeoutError) and not isinstance(
        error, ConnectionRefusedError
    ):
        return None
    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, ConnectionRefusedError):
        reason = "connection refused"
    return Explanation(
        f"{reason.lower()}; is `waylog up` running there? --bootstrap-servers names another "
        "address",
        certain=False,
    )


def _certificate(error: ssl.SSLCertVerificationError, broker: Broker) -> str:
    if error.verify_code in _CERTIFICATES:
        return _CERTIFICATES[error.verify_code]
    if error.verify_code in _WRONG_NAMES:
        return (
            f"the broker's certificate does not name {broker.host}: ask for the broker by a name "
            "that it has (--bootstrap-servers, the broker's advertised.listeners), or give the "
            "broker a certificate with this one"
        )
    return (
        f"the broker's certificate is not of an authority that this client trusts "
        f"({error.verify_message}): name the file of the right authority with "
        "ssl.truststore.location (ssl.ca.location)"
    )


def _is_about_our_certificate(error: ssl.SSLError) -> bool:
    """Return whether an error is the broker's alert about a certificate."""
    reason = error.reason or ""
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)


def _difference(listener: Listener, security: ConnectionSecurity) -> str | None:
    """Say which properties would fit the listener; None if the client's do."""
    ours = security.protocol
    if listener.wants_certificate and security.tls is not None:
        return _CLIENT_CERTIFICATE
    if listener.protocol == ours:
        return None
    theirs = listener.protocol
    needed = [f"security.protocol={theirs}"]
    about = []
    if theirs.startswith("SASL") and not ours.startswith("SASL"):
        about.append("it wants clients to log in")
        mechanisms = ", ".join(listener.mechanisms)
        needed.append(f"sasl.mechanism ({mechanisms}), sasl.username and sasl.password")
    elif ours.startswith("SASL") and not theirs.startswith("SASL"):
        about.append("it has no logins")
    if theirs.endswith("SSL") and not ours.endswith("SSL"):
        about.append("it wants TLS")
        needed.append("ssl.truststore.location (ssl.ca.location)")
        if listener.wants_certificate:
            needed.append("ssl.keystore.location")
    elif ours.endswith("SSL") and not theirs.endswith("SSL"):
        about.append("it does not speak TLS")
    return (
        f"{' and '.join(about)}: the listener is {theirs}, this client speaks {ours}; set "
        f"{', '.join(needed)}"
    )


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or error.strerror or str(error)).replace("_", " ").lower()
