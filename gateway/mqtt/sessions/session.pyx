"""The path of every message: sessions, their links to clients, and the hub between them.

Sans-IO: bytes and the time are arguments, and packets collect in the link until the shell takes
them. The classes make no policy: their subclasses in Python (`connection`, `router`) decide who may
connect, subscribe and publish.
"""

cimport cython
from collections import deque

from gateway.mqtt.packets.codec cimport (
    Acknowledgement, Decoder, Publish, encode_puback, encode_publish, is_sendable,
)
from gateway.mqtt.packets.topics cimport ElsewhereInterest, Subscription, SubscriptionTree

from gateway.mqtt.packets.codec import encode_acknowledgement, encode_pingresp
from gateway.mqtt.packets.packets import PingRequest, PropertyId, ReasonCode, RemoteProtocolError
from gateway.mqtt.packets.topics import merge

NEVER = 0xFFFFFFFF  # Session Expiry Interval: the session does not expire

AWAITING_CONNECT = STATE_AWAITING_CONNECT
AUTHENTICATING = STATE_AUTHENTICATING
CONNECTED = STATE_CONNECTED
CLOSED = STATE_CLOSED
CHALLENGED = STATE_CHALLENGED

cdef enum:
    PACKET_ID_MAX = 0xFFFF
    # Packet types, property identifiers and reason codes that are used here.
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    MESSAGE_EXPIRY_INTERVAL = 2
    SUBSCRIPTION_IDENTIFIER = 11
    TOPIC_ALIAS = 35
    UNSPECIFIED_ERROR = 0x80
    NOT_STORED = 0x100   # in place of a reason code: no answer is sent
    # Estimated size of a message's objects, for each client that receives it.
    DELIVERY_BYTES = 200
    ALIAS_BYTES_MAX = 16 * 1024  # of the topics behind a connection's topic aliases
    # Queued messages that one client is sent in a turn of the loop, as others wait, too.
    STEPS_A_TURN = 256
    STEPS_UNBOUNDED = 0x7FFFFFFF  # until a shell sets a limit
    SPREAD_FROM = 32  # up to so many subscribers get a message within one turn
    SPREAD_A_STEP = 32
    MERGED_A_STEP = 1_000
    SPREAD_BYTES_MAX = 16 * 1024 * 1024  # of messages that wait for earlier ones of their topics
    LOOK_BYTES = 512  # payload that costs as much as one packet
    STEPS_A_SEARCH = 16  # cost of a pause in a search for retained messages
    RELEASES_MAX = 1000  # unreleased QoS 2 publishes; MQTT 3 clients know no Receive Maximum

cdef object NOTHING_MORE = object()

#: Properties of a PUBLISH that are passed on with the message.
cdef frozenset MESSAGE_PROPERTIES = frozenset(
    {
        PropertyId.PAYLOAD_FORMAT_INDICATOR,
        PropertyId.CONTENT_TYPE,
        PropertyId.RESPONSE_TOPIC,
        PropertyId.CORRELATION_DATA,
        PropertyId.USER_PROPERTY,
    }
)


@cython.freelist(256)
@cython.no_gc
cdef class Message:
    """An application message, shared by all sessions that receive it."""

    def __init__(
        self, str topic, bytes payload, int qos=0, bint retain=False, dict properties=None,
        expires_at=None, bint latest_only=False, told=None,
    ):
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain  # as published
        self.properties = properties
        self.expires_at = expires_at  # s, on the clock that is passed as `now`
        #: While queued for a client, a newer message of the same topic replaces it.
        self.latest_only = latest_only
        #: Time (ms) and payload of the form that friends may see, if it cannot be derived from the
        #: payload.
        self.told = told

    cpdef bint expired(self, double now):
        """Return whether the message has expired."""
        return self.expires_at is not None and self.expires_at <= now


@cython.freelist(256)
@cython.no_gc
cdef class Delivery:
    """A message that is queued for or in flight to one client."""

    def __cinit__(self, Message message, int qos, bint retain, list identifiers):
        self.message = message
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.dup = False  # sent before, on an earlier connection
        self.released = False  # QoS 2: PUBREC came, PUBREL was sent


cpdef Message message_of(
    str topic, bytes payload, int qos, bint retain, dict properties, double now
):
    """Return the application message of a PUBLISH or of a will."""
    if not properties:
        return Message(topic, payload, qos, retain)
    expiry = properties.get(MESSAGE_EXPIRY_INTERVAL)
    kept = {name: value for name, value in properties.items() if name in MESSAGE_PROPERTIES}
    return Message(
        topic, payload, qos, retain, kept or None, None if expiry is None else now + expiry
    )


include "accounts.pxi"
include "session.pxi"
include "link.pxi"
include "hub.pxi"
