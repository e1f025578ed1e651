"""Decodes clients' MQTT packets. No I/O, no policy.

Section numbers are those of MQTT 5.0. A length field is never trusted beyond the received bytes.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr, memcmp

from gateway.mqtt.packets.packet_fields cimport (
    Reader,
    decode_string,
    left,
    malformed,
    read_binary,
    read_byte,
    read_length,
    read_packet_id,
    read_string,
    read_two_bytes,
    violation,
)
from gateway.mqtt.packets.packet_numbers cimport (
    AUTH,
    CLIENT_IDENTIFIER_NOT_VALID,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PACKET_TOO_LARGE,
    PINGREQ,
    PINGRESP,
    PROTOCOL_ERROR,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    QUOTA_EXCEEDED,
    REMAINING_LENGTH_MAX,
    SUBACK,
    SUBSCRIBE,
    TOPIC_NAME_INVALID,
    UNSUBACK,
    UNSUBSCRIBE,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from gateway.mqtt.packets.packet_properties cimport WILL, read_properties

from gateway.mqtt.packets.packets import (
    Auth,
    Connect,
    Disconnect,
    PingRequest,
    RemoteProtocolError,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)

cdef enum:
    FILTERS_A_PACKET_MAX = 256


# Publish and Acknowledgement cannot be part of a reference cycle, and thousands of them wait at any
# time: the garbage collector does not track them.
@cython.freelist(256)
@cython.no_gc
cdef class Publish:
    """PUBLISH (section 3.3). `topic` is empty when a topic alias stands for it."""

    def __init__(
        self, str topic, bytes payload, int qos=0, bint retain=False, bint dup=False,
        int packet_id=0, dict properties=None,
    ):
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.packet_id = packet_id
        self.reason_code = -1
        self.properties = properties

    def __eq__(self, other):
        return type(other) is Publish and (
            self.topic, self.payload, self.qos, self.retain, self.dup, self.packet_id,
            self.properties,
        ) == (
            other.topic, other.payload, other.qos, other.retain, other.dup, other.packet_id,
            other.properties,
        )

    def __repr__(self):
        # Never include the payload: it tells where a person is.
        return (
            f"Publish({self.topic!r}, {len(self.payload)} bytes, qos={self.qos}, "
            f"retain={self.retain}, dup={self.dup}, packet_id={self.packet_id}, "
            f"properties={self.properties!r})"
        )


@cython.freelist(256)
@cython.no_gc
cdef class Acknowledgement:
    """PUBACK, PUBREC, PUBREL or PUBCOMP (sections 3.4 to 3.7)."""

    def __init__(self, int packet_type, int packet_id, int reason_code=0, dict properties=None):
        self.packet_type = packet_type
        self.packet_id = packet_id
        self.reason_code = reason_code
        self.properties = properties

    def __eq__(self, other):
        return type(other) is Acknowledgement and (
            self.packet_type, self.packet_id, self.reason_code, self.properties
        ) == (other.packet_type, other.packet_id, other.reason_code, other.properties)

    def __repr__(self):
        return (
            f"Acknowledgement({self.packet_type}, {self.packet_id}, {self.reason_code:#04x}, "
            f"{self.properties!r})"
        )


cdef int check_count(list filters) except -1:
    """Check the number of filters: thousands in a small packet would delay other clients."""
    if len(filters) > FILTERS_A_PACKET_MAX:
        raise RemoteProtocolError(QUOTA_EXCEEDED, "too many topic filters in one packet")
    return 0


cdef class Decoder:
    """Splits the byte stream of one client into packets; refuses packets that only servers send.

    The caller owns the socket: it passes bytes to `receive_data` and calls `next_packet` until that
    returns None. Memory grows with the bytes received, never with an announced length.
    """

    def __init__(self, uint32_t packet_bytes_max=REMAINING_LENGTH_MAX + 5, int version=0):
        self.packet_bytes_max = packet_bytes_max
        self.version = version

    @property
    def buffered_bytes(self):
        """The number of bytes that were received and not yet returned as packets."""
        return self.left()

    cdef Py_ssize_t left(self):
        if self._data is not None:
            return len(self._data) - self._position
        if self._partial is not None:
            return len(self._partial) - self._position
        return 0

    cpdef receive_data(self, bytes data):
        """Take received bytes."""
        if self._partial is not None:
            self._partial += data
        elif self._data is None:
            self._data = data
            self._position = 0
        else:
            self._keep_rest()
            self._partial += data

    def _keep_rest(self):
        """Move the bytes left into a buffer that can grow without being copied each time."""
        if self._data is not None:
            self._partial = bytearray(self._data[self._position:])
            self._data = None
        else:
            del self._partial[:self._position]
        self._position = 0

    cpdef next_packet(self):
        """Return the next complete packet, or None.

        Raises RemoteProtocolError, and again on each later call.
        """
        cdef const uint8_t* start
        cdef Py_ssize_t size, header = 1, packet_size
        cdef uint32_t remaining = 0
        cdef int shift = 0
        cdef Reader body
        if self._failed:
            raise RemoteProtocolError(PROTOCOL_ERROR, "the stream was broken before")
        if self._data is not None:
            start = <const uint8_t*> PyBytes_AS_STRING(self._data) + self._position
            size = PyBytes_GET_SIZE(self._data) - self._position
        elif self._partial is not None:
            size = PyByteArray_GET_SIZE(self._partial) - self._position
            if size < self._needed:
                return None
            start = <const uint8_t*> PyByteArray_AS_STRING(self._partial) + self._position
        else:
            return None
        self._needed = 0
        try:
            # A packet that its first byte rules out is refused before its body arrives.
            self._check_first_byte(start[0])
            while True:
                if header == size:
                    self._keep_rest()
                    return None
                remaining |= <uint32_t> (start[header] & 0x7F) << shift
                shift += 7
                header += 1
                if start[header - 1] < 0x80:
                    break
                if header == 5:
                    malformed("remaining length has more than four bytes")
            if self.version == 5 and header > 2 and start[header - 1] == 0:
                malformed("remaining length is longer than needed")
            packet_size = header + remaining
            if packet_size > self.packet_bytes_max:
                raise RemoteProtocolError(
                    PACKET_TOO_LARGE,
                    f"packet of {packet_size} bytes, {self.packet_bytes_max} are allowed",
                )
            if size < packet_size:
                self._keep_rest()
                self._needed = packet_size
                return None
            body.position = start + header
            body.end = start + packet_size
            packet = self._parse(start[0], &body)
        except RemoteProtocolError:
            self._failed = True
            self._data = self._partial = None
            raise
        if size == packet_size:
            self._data = self._partial = None
        else:
            self._position += packet_size
        return packet

    cdef int _check_first_byte(self, uint8_t first) except -1:
        cdef int packet_type = first >> 4, flags = first & 0x0F
        if self.version == 0 and packet_type != CONNECT:
            violation("the first packet is not CONNECT")
        if packet_type == PUBLISH:
            if flags & 0x06 == 0x06:
                malformed("QoS 3")
            if flags & 0x0E == 0x08:
                malformed("DUP with QoS 0")
            return 0
        if packet_type in (PUBREL, SUBSCRIBE, UNSUBSCRIBE):
            # MQTT 3.1 allows these to be repeated with DUP.
            if flags != 0x02 and not (self.version == 3 and flags == 0x0A):
                malformed("reserved flags are wrong")
            return 0
        if packet_type == 0 or (packet_type == AUTH and self.version != 5):
            malformed("reserved packet type")
        if packet_type in (CONNACK, SUBACK, UNSUBACK, PINGRESP):
            violation("a packet that only servers send")
        if flags:
            malformed("reserved flags are set")
        return 0

    cdef object _parse(self, uint8_t first, Reader* body):
        cdef int packet_type = first >> 4
        if packet_type == PUBLISH:
            return self._publish(first, body)
        if PUBACK <= packet_type <= PUBCOMP:
            return self._acknowledgement(packet_type, body)
        if packet_type == PINGREQ:
            packet = PingRequest()
        elif packet_type == CONNECT:
            if self.version != 0:
                violation("a second CONNECT")
            packet = self._connect(body)
        elif packet_type == SUBSCRIBE:
            packet = self._subscribe(body)
        elif packet_type == UNSUBSCRIBE:
            packet = self._unsubscribe(body)
        elif packet_type == DISCONNECT:
            packet = Disconnect(*self._reason(packet_type, body))
        else:
            packet = Auth(*self._reason(packet_type, body))
        if left(body):
            malformed("packet has bytes after its end")
        return packet

    cdef Publish _publish(self, uint8_t first, Reader* body):
        cdef Publish packet = Publish.__new__(Publish)
        cdef Py_ssize_t size = read_length(body), cached_size
        cdef const uint8_t* start = body.position
        cdef const char* cached
        body.position += size
        packet.qos = (first >> 1) & 3
        packet.retain = first & 1
        packet.dup = (first >> 3) & 1
        packet.reason_code = -1
        if self._topic is not None:
            cached = PyUnicode_AsUTF8AndSize(self._topic, &cached_size)
            if cached_size == size and memcmp(cached, start, size) == 0:
                packet.topic = self._topic
        if packet.topic is None:
            packet.topic = decode_string(start, size)
            if memchr(start, b'+', size) != NULL or memchr(start, b'#', size) != NULL:
                raise RemoteProtocolError(TOPIC_NAME_INVALID, "PUBLISH to a topic with a wildcard")
            if size:
                self._topic = packet.topic
        if packet.qos:
            packet.packet_id = read_packet_id(body)
        if self.version == 5:
            packet.properties = read_properties(body, PUBLISH)
        if size == 0 and (packet.properties is None or 35 not in packet.properties):
            raise RemoteProtocolError(
                PROTOCOL_ERROR if self.version == 5 else TOPIC_NAME_INVALID,
                "PUBLISH without a topic",
            )
        packet.payload = PyBytes_FromStringAndSize(<const char*> body.position, left(body))
        return packet

    cdef object _acknowledgement(self, int packet_type, Reader* body):
        cdef Acknowledgement packet = Acknowledgement.__new__(Acknowledgement)
        packet.packet_type = packet_type
        packet.packet_id = read_packet_id(body)
        if left(body):
            if self.version != 5:
                malformed("packet has bytes after its end")
            packet.reason_code, packet.properties = self._reason(packet_type, body)
            if left(body):
                malformed("packet has bytes after its end")
        return packet

    cdef tuple _reason(self, int packet_type, Reader* body):
        """Return reason code and properties, which a packet may omit at its end."""
        cdef int reason_code = 0
        if self.version != 5:
            return 0, None
        if left(body):
            reason_code = read_byte(body)
        return reason_code, read_properties(body, packet_type) if left(body) else None

    cdef object _connect(self, Reader* body):
        cdef int level, flags, keep_alive
        name = read_binary(body)
        level = read_byte(body)
        if not (name == b"MQTT" and level in (4, 5) or name == b"MQIsdp" and level == 3):
            if name in (b"MQTT", b"MQIsdp"):
                raise RemoteProtocolError(
                    UNSUPPORTED_PROTOCOL_VERSION, f"protocol level {level} is not supported"
                )
            violation("not an MQTT client: wrong protocol name")
        # From here on answers can be sent in the client's version.
        self.version = level
        flags = read_byte(body)
        if flags & 1 and level > 3:
            malformed("reserved connect flag is set")
        if flags & 0x18 == 0x18:
            malformed("will with QoS 3")
        if not flags & 0x04 and flags & 0x38:
            malformed("will flags without a will")
        if flags & 0x40 and not flags & 0x80 and level < 5:
            malformed("password without user name")
        keep_alive = read_two_bytes(body)
        properties = read_properties(body, CONNECT) if level == 5 else None
        if properties is not None and 22 in properties and 21 not in properties:
            violation("authentication data without a method")
        packet = Connect(
            level, read_string(body), bool(flags & 0x02), keep_alive, properties=properties
        )
        if flags & 0x04:
            properties = read_properties(body, WILL) if level == 5 else None
            topic = read_string(body)
            if not topic or "+" in topic or "#" in topic:
                raise RemoteProtocolError(TOPIC_NAME_INVALID, "topic of the will is not valid")
            packet.will = Will(
                topic, read_binary(body), (flags >> 3) & 3, bool(flags & 0x20), properties
            )
        if flags & 0x80:
            packet.username = read_string(body)
        if flags & 0x40:
            packet.password = read_binary(body)
        if not packet.client_id and not packet.clean_start and level == 4 or (
            not packet.client_id and level == 3
        ):
            raise RemoteProtocolError(CLIENT_IDENTIFIER_NOT_VALID, "empty client identifier")
        return packet

    cdef object _subscribe(self, Reader* body):
        cdef int packet_id = read_packet_id(body), options
        cdef list requests = []
        properties = read_properties(body, SUBSCRIBE) if self.version == 5 else None
        while left(body):
            topic_filter = read_string(body)
            options = read_byte(body)
            if not topic_filter:
                violation("empty topic filter")
            if options & 3 == 3 or options & (0xC0 if self.version == 5 else 0xFC):
                malformed("subscription options are wrong")
            if options & 0x30 == 0x30:
                violation("retain handling 3")
            if options & 0x04 and topic_filter.startswith("$share/"):
                violation("no local on a shared subscription")
            requests.append(SubscriptionRequest(
                topic_filter, options & 3, bool(options & 4), bool(options & 8), options >> 4
            ))
            check_count(requests)
        if not requests:
            violation("SUBSCRIBE without a topic filter")
        return Subscribe(packet_id, requests, properties)

    cdef object _unsubscribe(self, Reader* body):
        cdef int packet_id = read_packet_id(body)
        cdef list filters = []
        properties = read_properties(body, UNSUBSCRIBE) if self.version == 5 else None
        while left(body):
            filters.append(read_string(body))
            if not filters[-1]:
                violation("empty topic filter")
            check_count(filters)
        if not filters:
            violation("UNSUBSCRIBE without a topic filter")
        return Unsubscribe(packet_id, filters, properties)


#: The packets that `Decoder.next_packet` returns.
Packet = (
    Publish | Acknowledgement | Connect | Subscribe | Unsubscribe | PingRequest | Disconnect | Auth
)
