"""Reason codes, property identifiers and the rarer packets of MQTT 3.1, 3.1.1 and 5.0.

Section numbers are those of the OASIS standard MQTT 5.0. Packets that a server sees thousands of
times a second (PUBLISH and its acknowledgements) are extension types in `codec`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

MQTT_3_1: Final = 3  # protocol name MQIsdp
MQTT_3_1_1: Final = 4
MQTT_5: Final = 5

#: Property values by identifier: integers, strings or bytes. User Property has a list of pairs, and
#: Subscription Identifier a list of integers, as these two may occur several times.
PropertyValue = int | str | bytes | list[tuple[str, str]] | list[int]
Properties = dict[int, PropertyValue]


class PacketType(IntEnum):
    """The four high bits of a packet's first byte (section 2.1.2)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class PropertyId(IntEnum):
    """Property identifiers (section 2.2.2.2)."""

    PAYLOAD_FORMAT_INDICATOR = 1
    MESSAGE_EXPIRY_INTERVAL = 2
    CONTENT_TYPE = 3
    RESPONSE_TOPIC = 8
    CORRELATION_DATA = 9
    SUBSCRIPTION_IDENTIFIER = 11
    SESSION_EXPIRY_INTERVAL = 17
    ASSIGNED_CLIENT_IDENTIFIER = 18
    SERVER_KEEP_ALIVE = 19
    AUTHENTICATION_METHOD = 21
    AUTHENTICATION_DATA = 22
    REQUEST_PROBLEM_INFORMATION = 23
    WILL_DELAY_INTERVAL = 24
    REQUEST_RESPONSE_INFORMATION = 25
    RESPONSE_INFORMATION = 26
    SERVER_REFERENCE = 28
    REASON_STRING = 31
    RECEIVE_MAXIMUM = 33
    TOPIC_ALIAS_MAXIMUM = 34
    TOPIC_ALIAS = 35
    MAXIMUM_QOS = 36
    RETAIN_AVAILABLE = 37
    USER_PROPERTY = 38
    MAXIMUM_PACKET_SIZE = 39
    WILDCARD_SUBSCRIPTION_AVAILABLE = 40
    SUBSCRIPTION_IDENTIFIER_AVAILABLE = 41
    SHARED_SUBSCRIPTION_AVAILABLE = 42


class ReasonCode(IntEnum):
    """Reason codes of MQTT 5 (section 2.4); older versions get the nearest code they have."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


#: Reason codes of AUTH (section 3.15.2.1).
CONTINUE_AUTHENTICATION: Final = 0x18
RE_AUTHENTICATE: Final = 0x19


#: The CONNACK return codes of MQTT 3.1 and 3.1.1 for reason codes of MQTT 5.
CONNACK_3: Final = {
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: 1,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 2,
    ReasonCode.SERVER_UNAVAILABLE: 3,
    ReasonCode.SERVER_BUSY: 3,
    ReasonCode.QUOTA_EXCEEDED: 3,
    ReasonCode.USE_ANOTHER_SERVER: 3,
    ReasonCode.SERVER_MOVED: 3,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: 4,
    ReasonCode.NOT_AUTHORIZED: 5,
    ReasonCode.BANNED: 5,
}


class ProtocolError(Exception):
    """A violation of MQTT; `reason_code` is the reason code that MQTT 5 has for it."""

    def __init__(self, reason_code: int, message: str) -> None:
        super().__init__(message)
        self.reason_code = ReasonCode(reason_code)


class LocalProtocolError(ProtocolError):
    """The server was about to send something that MQTT does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer has sent something that MQTT or our limits do not allow."""


@dataclass(slots=True)
class Will:
    """A message that is published when a client's connection ends without a DISCONNECT."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties | None = None


@dataclass(slots=True)
class Connect:
    """CONNECT (section 3.1). `clean_start` is Clean Session in MQTT 3."""

    version: int
    client_id: str
    clean_start: bool = True
    keep_alive: int = 0  # s; 0 = none
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties | None = None

    def __repr__(self) -> str:
        # Appears in log lines and assertion messages: never include the password.
        return f"Connect(version={self.version}, client_id={self.client_id!r})"


@dataclass(slots=True)
class SubscriptionRequest:
    """One topic filter of a SUBSCRIBE, with its options (section 3.8.3.1)."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0  # 0 send retained, 1 only for a new subscription, 2 never


@dataclass(slots=True)
class Subscribe:
    """SUBSCRIBE (section 3.8)."""

    packet_id: int
    subscriptions: list[SubscriptionRequest]
    properties: Properties | None = None


@dataclass(slots=True)
class Unsubscribe:
    """UNSUBSCRIBE (section 3.10)."""

    packet_id: int
    topic_filters: list[str]
    properties: Properties | None = None


@dataclass(slots=True)
class PingRequest:
    """PINGREQ (section 3.12)."""


@dataclass(slots=True)
class Disconnect:
    """DISCONNECT (section 3.14)."""

    reason_code: int = 0
    properties: Properties | None = None


@dataclass(slots=True)
class Auth:
    """AUTH (section 3.15)."""

    reason_code: int = 0
    properties: Properties | None = None
