"""Seals and opens values of the log if a master key is set; costs nothing if none is.

The encryption itself is in waylog.sealing.value_encryption, which is loaded only with a master key.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from waylog.kafka.clients import DeliveryCallback, Headers, RecordHeaders, RecordPosition
from waylog.kafka.topics import (
    ERASURE,
    FORWARDING,
    FORWARDING_PROGRESS,
    HEAT_MAP,
    LOG,
    MQTT_STATE,
    PARAMETER,
    PERFORMANCE,
    PUSH,
    VALUE_KEY,
)

if TYPE_CHECKING:
    from confluent_kafka import Message

    from waylog.sealing.value_keys import KeyRing

#: Names the file of the master key, for all processes of the platform; without it nothing is
#: sealed.
ENVIRONMENT: Final = "WAYLOG_MASTER_KEY"

#: Topics whose values hold nobody's positions: the heat map only has counts of several devices.
#: All others are sealed, including those to which an operator maps MQTT messages.
_PLAIN_TOPICS: Final = frozenset({VALUE_KEY, ERASURE, PERFORMANCE, PARAMETER, LOG, HEAT_MAP, PUSH})

#: Owners other than devices and users: messages that MQTT clients retain outside of users' topics;
#: a user's sessions; messages that an operator's rules map from MQTT to other topics of the log; a
#: user's forwardings, which outlive an erasure of one device.
NOBODYS_RETAINED: Final = "$retained"
_SESSIONS: Final = "$sessions/"
_MAPPED: Final = "$mapped/"
_FORWARDINGS: Final = "$forwardings/"
_OF_FORWARDINGS: Final = (FORWARDING, FORWARDING_PROGRESS)
_USER_HEADER: Final = "mqtt.user"
_ROOTS: Final = ("owntracks", "devices")

#: The first bytes of a sealed value; JSON and Avro with a schema id never begin so.
MAGIC: Final = b"\xe1\x01"

#: The bytes of the id of a key, which follow MAGIC.
ID_BYTES: Final = 8

_PATIENCE_S: Final = 2.0

Opened = Callable[[Sequence["Message"]], "list[Message]"]


def is_sealed_topic(topic: str) -> bool:
    """Return whether values of a topic are sealed when a master key is set."""
    return topic not in _PLAIN_TOPICS


def owner_of_record(topic: str, key: bytes | None, headers: RecordHeaders | None = None) -> str:
    """Return the owner whose key seals a record: a device (`user/device`), a user, or "".

    The owner is the first line of the record's key. An MQTT session belongs to its user, a retained
    message to the device of its topic, a message that a rule maps to a topic of the log to the user
    who sent it, a forwarding to its user.
    """
    text = (key or b"").decode("utf-8", "replace")
    if topic == MQTT_STATE:
        kind, _, name = text.partition("\0")
        if kind == "session":
            # The login is `user`, or `user/device`.
            return _SESSIONS + name.partition("\0")[0].partition("/")[0]
        return owner_of_mqtt_topic(name)
    owner = text.partition("\n")[0]
    if topic in _OF_FORWARDINGS:
        return _FORWARDINGS + owner
    if isinstance(headers, list):
        user = next((value for name, value in headers if name == _USER_HEADER), None)
        if user is not None:
            sender = user.decode("utf-8", "replace") if isinstance(user, bytes) else str(user)
            return owner if owner.startswith(f"{sender}/") else _MAPPED + sender
    return owner


def is_device(owner: str) -> bool:
    """Return whether an owner is a device, `user/device`."""
    return "/" in owner and not owner.startswith("$")


def seals_forwardings(owner: str) -> bool:
    """Return whether an owner is that of a user's forwardings."""
    return owner.startswith(_FORWARDINGS)


def owners_of_user(user: str) -> list[str]:
    """Return the owners of a user's records without a device: refused, sessions, mapped ones,
    forwardings.
    """
    return [user, _SESSIONS + user, _MAPPED + user, _FORWARDINGS + user]


def owner_of_mqtt_topic(topic: str) -> str:
    """Return the device or user that an MQTT topic belongs to, or NOBODYS_RETAINED."""
    levels = topic.split("/", 3)
    if levels[0] not in _ROOTS or len(levels) < 2 or not levels[1]:
        return NOBODYS_RETAINED
    return "/".join(levels[1:3]) if len(levels) > 2 and levels[2] else levels[1]


def is_sealed(value: bytes | None) -> bool:
    """Return whether a value is sealed."""
    return value is not None and value.startswith(MAGIC)


def key_id_of(value: bytes) -> bytes:
    """Return the id of the key that a sealed value needs."""
    return value[len(MAGIC) : len(MAGIC) + ID_BYTES]


@lru_cache(maxsize=4)
def shared_key_ring(bootstrap_servers: str) -> KeyRing | None:
    """Return this process's key ring for a log; None if values are not sealed.

    Raises ConfigError, LogUnreachable.
    """
    if not os.environ.get(ENVIRONMENT):
        return None
    from waylog.sealing.value_encryption import load_master_key
    from waylog.sealing.value_keys import KeyRing

    ring = KeyRing(bootstrap_servers, load_master_key(Path(os.environ[ENVIRONMENT])))
    # Its thread must not be inside librdkafka while the interpreter shuts down.
    atexit.register(ring.close)
    return ring


def opener(
    bootstrap_servers: str,
    *,
    is_repeated: bool = False,
    properties: Mapping[str, str] | None = None,
) -> Opened:
    """Return the function that opens sealed messages, for readers that must not pass any over.

    The function raises ConfigError for a master key that is missing or wrong, LogUnreachable if the
    log does not tell its keys. `is_repeated`: it is called again then, and waits only a moment. A
    value that no key of the log has sealed stays as it is. `properties` are those with which a
    client without a master key logs in. Raises ConfigError, LogUnreachable.
    """
    if is_repeated and (repeated := repeated_opener(bootstrap_servers)) is not None:
        return repeated
    ring = shared_key_ring(bootstrap_servers)
    if ring is not None:
        return ring.open_messages
    from waylog.sealing.unopened import Unopened

    return Unopened(bootstrap_servers, properties).checked


def opener_if_configured(bootstrap_servers: str) -> Opened | None:
    """Return the function that opens sealed messages; None without a master key.

    For readers to whom a value that stays sealed does no harm. Raises ConfigError, LogUnreachable.
    """
    ring = shared_key_ring(bootstrap_servers)
    return None if ring is None else ring.open_messages


def repeated_opener(bootstrap_servers: str) -> Opened | None:
    """Return the same for a BatchReader, which calls it again while keys cannot be learnt.

    Its thread ends soon after its process is told to.
    """
    ring = shared_key_ring(bootstrap_servers)
    return None if ring is None else lambda messages: ring.open_messages(messages, _PATIENCE_S)


class LogProducer(Protocol):
    """The interface of waylog.kafka.batch_producer.BatchProducer."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: RecordHeaders | None,
        on_delivery: DeliveryCallback,
    ) -> None: ...

    def append(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[RecordPosition]: ...

    def __len__(self) -> int: ...

    @property
    def fatal(self) -> str | None: ...

    @property
    def trouble(self) -> str | None: ...

    @property
    def acknowledged_at(self) -> float: ...

    async def close(self, timeout_s: float = 10.0) -> int: ...


def sealed_if_configured(
    producer: LogProducer, bootstrap_servers: str, loop: asyncio.AbstractEventLoop
) -> LogProducer:
    """Return the producer itself, or one that seals if the environment names a master key.

    Waits until all keys are known, so that a device with a key gets no second one. Raises
    ConfigError, LogUnreachable.
    """
    ring = shared_key_ring(bootstrap_servers)
    if ring is None:
        return producer
    ring.catch_up()
    from waylog.sealing.sealed_log import SealedLog

    return SealedLog(producer, ring, loop)


def key_ring_of_writer(bootstrap_servers: str) -> KeyRing | None:
    """Return `shared_key_ring` for somebody who writes; see `check_writer_has_key`."""
    check_writer_has_key(bootstrap_servers)
    return shared_key_ring(bootstrap_servers)


def check_writer_has_key(bootstrap_servers: str) -> None:
    """Check before the first record that what is written here is sealed if the log's values are.

    Blocks while the keys of the log are read. Raises ConfigError for a master key that is missing
    or wrong, LogUnreachable.
    """
    ring = shared_key_ring(bootstrap_servers)
    if ring is not None:
        ring.catch_up()
        return
    from waylog.sealing.unopened import refuse_sealed_log

    refuse_sealed_log(bootstrap_servers)
