"""What all routes of administrators for the log have in common: who asks, refusals, the audit."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final, TypeVar

from aiohttp import web
from confluent_kafka import KafkaError, KafkaException

from gateway.http.requests.authentication import known_user
from gateway.http.requests.responses import Refused, unavailable
from gateway.operations.operations import Operations
from gateway.users.auth import Identity
from waylog.administration.log_access import LogAway, NotInLog
from waylog.administration.offsets import BadMoment
from waylog.cli import CommandError
from waylog.config import ConfigError
from waylog.kafka.clients import LogUnreachable
from waylog.kafka.errors import error_text
from waylog.network.shares import ShareExceeded

#: Who has changed, and read, what. Its lines are those of the gateway's log and of topic `log`.
audit: Final = logging.getLogger("gateway.operations.audit")

T = TypeVar("T")

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_UNKNOWN: Final = frozenset(
    (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND, KafkaError.TOPIC_EXCEPTION)
)
_AWAY: Final = frozenset(
    (
        *(KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT),
        *(KafkaError._TIMED_OUT_QUEUE, KafkaError.REQUEST_TIMED_OUT, KafkaError._WAIT_COORD),
    )
)


async def administrator(request: web.Request) -> Identity:
    """Return who asks. Raises Refused unless that is an administrator."""
    identity = await known_user(request, "this is for administrators", by_session=True)
    if not identity.admin:
        raise Refused(403, "this is for administrators")
    return identity


async def asked(operations: Operations, identity: Identity, question: Callable[[], T]) -> T:
    """Return what a question to the log answers. Raises Refused."""
    try:
        return await operations.console.ask(identity.user, question)
    except Exception as error:
        raise _refusal(error) from error


async def read(operations: Operations, identity: Identity, reading: Callable[[], T]) -> T:
    """Do the same for what reads records, which keeps nobody from asking."""
    try:
        return await operations.console.read(identity.user, reading)
    except Exception as error:
        raise _refusal(error) from error


async def changed(
    operations: Operations, identity: Identity, what: str, change: Callable[[], T]
) -> T:
    """Change the log, and write to the audit who has, or could not. Raises Refused."""
    try:
        result = await asked(operations, identity, change)
    except Refused as refusal:
        audit.warning("%s could not %s: %s", identity.user, what, refusal.reason)
        raise
    audit.info("%s did %s", identity.user, what)
    return result


def topic_of(request: web.Request) -> str:
    """Return the topic of the path. Raises Refused."""
    topic = request.match_info["topic"]
    if not is_topic_name(topic):
        raise Refused(404, "there is no such topic")
    return topic


def is_topic_name(name: str) -> bool:
    """Return whether a topic may have this name."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def require_confirmed(confirm: str, name: str) -> None:
    """Raise Refused unless the name of what is changed was typed."""
    if confirm != name:
        raise Refused(400, 'this is confirmed by the name: {"confirm": "' + name[:200] + '"}')


def number_of(request: web.Request, name: str, otherwise: int, most: int) -> int:
    """Return a number of the URL's query, at most `most`. Raises Refused."""
    text = request.query.get(name)
    if text is None:
        return otherwise
    if not text.isdecimal() or len(text) > 18:
        raise Refused(400, f"{name} is a number")
    return min(int(text), most)


def _refusal(error: Exception) -> Exception:
    """Return the refusal for what a question to the log has raised; what is a bug stays."""
    if isinstance(error, ShareExceeded):
        return Refused(429, "you are asking for too much at once", {"Retry-After": "2"})
    if isinstance(error, NotInLog):
        return Refused(404, str(error))
    if isinstance(error, LogAway | LogUnreachable | TimeoutError):
        return unavailable(str(error) or "the log does not answer in time")
    if isinstance(error, BadMoment):
        return Refused(400, str(error))
    if isinstance(error, CommandError | ConfigError):
        return Refused(409, str(error))
    if isinstance(error, KafkaException):
        cause: KafkaError = error.args[0]
        if cause.code() in _UNKNOWN:
            return Refused(404, error_text(error))
        if cause.code() in _AWAY or cause.retriable():
            return unavailable(f"the log does not answer: {error_text(error)}")
        return Refused(409, f"the log refuses: {error_text(error)}")
    return error
