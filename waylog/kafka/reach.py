"""Finds out whether a Kafka cluster lets a client in at an address, and if not, why.

librdkafka tries again and again, and only distinguishes a refused connection from one that breaks.
A user who starts a command needs to know at once whether the port is wrong, a login is missing or
a password is wrong, so a connection of our own goes first.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from waylog.config import ConfigError, check_bootstrap_servers
from waylog.kafka.clients import LogUnreachable, client_config
from waylog.kafka.connection.broker_connection import BrokerConnection, addresses
from waylog.kafka.connection.mismatch import explain_all
from waylog.kafka.connection.properties import (
    ENVIRONMENT,
    UnsupportedProperty,
    configured_properties,
)
from waylog.kafka.connection.security import (
    ConnectionSecurity,
    check_configured_security,
    connection_security,
)
from waylog.kafka.errors import error_text
from waylog.kafka.protocol import requests
from waylog.kafka.protocol.requests import Broker, MalformedAnswer

#: Seconds to wait for a cluster that librdkafka asks; the message about a failed start comes within
#: five seconds.
REACH_S: Final = 3.0
#: The same of our own connection: together with what `explain` asks they stay below five seconds.
_CONNECT_S: Final = 1.5
#: A broker answers a wrong password late, ours after up to 3.2 seconds.
_LOGIN_S: Final = 4.0
_ANSWER_S: Final = 2.0
_PROBE_S: Final = 0.75
#: A broker that is restarted may take connections again in a moment; nobody waits longer for it.
_ONCE_MORE_S: Final = 0.5


def connect_admin(
    bootstrap_servers: str, properties: Mapping[str, str] | None = None, client_id: str = "waylog"
) -> AdminClient:
    """Return an admin client of a cluster that has answered.

    `properties` are those with which the client logs in. Raises ConfigError for unknown
    properties, LogUnreachable with one line about the reason and the remedy.
    """
    check_bootstrap_servers(bootstrap_servers)
    options = client_config(bootstrap_servers, client_id) | dict(properties or {})
    try:
        # Without brokers it only checks the properties.
        AdminClient(options | {"bootstrap.servers": ""})
    except KafkaException as error:
        # Ours name the file, and what is expected.
        connection_security(options)
        raise ConfigError(f"the client's properties: {error_text(error)}") from None
    why = why_unreachable(bootstrap_servers, properties)
    if why is not None:
        raise LogUnreachable(why)
    admin = AdminClient(options)
    try:
        admin.list_topics(timeout=REACH_S)
    except KafkaException as error:
        raise LogUnreachable(
            f"no Kafka broker answers at {bootstrap_servers}: {error_text(error)}"
        ) from None
    return admin


def check_configured_properties() -> None:
    """Raise ConfigError if librdkafka refuses a property of the environment's file."""
    properties = configured_properties()
    if not properties:
        return
    # Ours name what is expected; librdkafka may support what our own connections do not.
    check_configured_security()
    try:
        # It would warn that it has no brokers.
        AdminClient({"bootstrap.servers": "", "log_level": 2, **properties})
    except KafkaException as error:
        raise ConfigError(f"{os.environ.get(ENVIRONMENT)}: {error_text(error)}") from None


def why_unreachable(
    bootstrap_servers: str, properties: Mapping[str, str] | None = None
) -> str | None:
    """Return why no broker lets a client in, with what to do; None if one does.

    Blocks for five seconds at most, for a second if all refuse connections. `properties` are those
    that the file of the environment does not have. None also for properties which only librdkafka
    supports. Raises ConfigError for wrong ones.
    """
    try:
        security = connection_security(configured_properties() | dict(properties or {}))
    except UnsupportedProperty:
        return None
    # In a thread of its own: the caller's may have an event loop that runs.
    with ThreadPoolExecutor(1, thread_name_prefix="reach") as thread:
        return thread.submit(asyncio.run, reach(bootstrap_servers, security)).result()


def silence_reason(bootstrap_servers: str) -> str | None:
    """Return why the log of a running service is silent; None if it answers, or nobody knows."""
    try:
        return why_unreachable(bootstrap_servers)
    except ConfigError as error:
        return f"the client's properties: {error}"


async def reach(bootstrap_servers: str, security: ConnectionSecurity) -> str | None:
    """Do what `why_unreachable` does."""
    brokers = addresses(bootstrap_servers)
    failures = await _ask_all(brokers, security)
    if failures and all(isinstance(each, ConnectionRefusedError) for each in failures.values()):
        await asyncio.sleep(_ONCE_MORE_S)
        failures = await _ask_all(brokers, security)
    if not failures:
        return None
    explanation = await explain_all(bootstrap_servers, failures, security, _PROBE_S)
    return explanation.text


async def _ask_all(brokers: list[Broker], security: ConnectionSecurity) -> dict[Broker, Exception]:
    """Ask all at the same time; return their errors, or none as soon as one has answered."""
    failures: dict[Broker, Exception] = {}
    tasks = {asyncio.create_task(_ask(broker, security)): broker for broker in brokers}
    waiting = set(tasks)
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                failure = task.result()
                if failure is None:
                    return {}
                failures[tasks[task]] = failure
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return failures


async def _ask(broker: Broker, security: ConnectionSecurity) -> Exception | None:
    connection: BrokerConnection | None = None
    try:
        connection = await BrokerConnection.connect(
            asyncio.get_running_loop(),
            broker,
            "waylog-reach",
            security,
            connect_timeout_s=_CONNECT_S,
            login_timeout_s=_LOGIN_S,
        )
        body = await connection.ask(requests.METADATA, requests.metadata([]), _ANSWER_S)
        requests.read_metadata(body)
    except (OSError, UnicodeError) as error:
        return error
    except MalformedAnswer as error:
        return ConnectionError(str(error))
    finally:
        if connection is not None:
            connection.close()
            await asyncio.sleep(0)  # the transport closes its socket in the next turn of the loop
    return None
