"""Application messages, and their deliveries to clients."""

cimport cython


from gateway.mqtt.packets.packet_numbers cimport (
    MESSAGE_EXPIRY_INTERVAL,
)
from gateway.mqtt.packets.packets import PropertyId

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
        expires_at=None, bint latest_only=False, bytes card_parts=None,
    ):
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain  # as published
        self.properties = properties
        self.expires_at = expires_at  # s, on the clock that is passed as `now`
        #: While queued for a client, a newer message of the same topic replaces it.
        self.latest_only = latest_only
        #: What the form that friends may see is made from, if it cannot be derived from the payload.
        self.card_parts = card_parts

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
