"""The path of every message: sessions, their links to clients, and the hub between them.

Sans-IO, no policy: bytes and the time come as arguments, packets collect in the link until the
shell takes them. Who may connect, subscribe and publish is decided in Python (`connection`,
`router`), which these classes are the bases of.
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

NEVER = 0xFFFFFFFF  # Session Expiry Interval: does not expire

AWAITING_CONNECT = STATE_AWAITING_CONNECT
AUTHENTICATING = STATE_AUTHENTICATING
CONNECTED = STATE_CONNECTED
CLOSED = STATE_CLOSED
CHALLENGED = STATE_CHALLENGED

cdef enum:
    PACKET_ID_MAX = 0xFFFF
    # Numbers of packets, properties and reason codes that are needed here.
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    MESSAGE_EXPIRY_INTERVAL = 2
    SUBSCRIPTION_IDENTIFIER = 11
    TOPIC_ALIAS = 35
    UNSPECIFIED_ERROR = 0x80
    NOT_STORED = 0x100   # instead of a reason code: nothing is answered
    # Of a message's objects, for each client it goes to.
    DELIVERY_BYTES = 200
    ALIAS_BYTES_MAX = 16 * 1024  # of the topics that aliases of a connection stand for
    # What one client is sent of what has waited for it, in a turn of the loop: others wait, too.
    STEPS_A_TURN = 256
    STEPS_UNBOUNDED = 0x7FFFFFFF  # until a shell says how many
    SPREAD_FROM = 32  # subscribers: to fewer a message goes at once
    SPREAD_A_STEP = 32
    MERGED_A_STEP = 1_000
    SPREAD_BYTES_MAX = 16 * 1024 * 1024  # of what waits for a message before it, in one process
    LOOK_BYTES = 512  # as much payload costs as much as a packet
    STEPS_A_SEARCH = 16  # among topics that do not match
    RELEASES_MAX = 1000  # QoS 2 of MQTT 3 clients, which know no Receive Maximum

cdef object NOTHING_MORE = object()

#: Properties of a PUBLISH that belong to the message, not to this hop.
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
    """An application message, shared by all sessions it goes to."""

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
        #: While it waits for a client, a newer message of the same topic takes its place.
        self.latest_only = latest_only
        #: What friends get in its place, and of which time (ms) it is, where that cannot be found
        #: out from the payload.
        self.told = told

    cpdef bint expired(self, double now):
        """Tell whether the publisher did not want it to be delivered any more."""
        return self.expires_at is not None and self.expires_at <= now


@cython.freelist(256)
@cython.no_gc
cdef class Delivery:
    """A message on its way to one client."""

    def __cinit__(self, Message message, int qos, bint retain, list identifiers):
        self.message = message
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.dup = False  # was sent before, on an earlier connection
        self.released = False  # QoS 2: PUBREC came, PUBREL was sent


cpdef Message message_of(
    str topic, bytes payload, int qos, bint retain, dict properties, double now
):
    """The application message of a PUBLISH or of a will."""
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
