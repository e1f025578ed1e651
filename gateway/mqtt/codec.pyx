"""MQTT packets of clients to objects, answers of the server to bytes. No I/O, no policy.

Sections are those of MQTT 5.0. A length field is believed only up to the bytes that are there.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from gateway.mqtt.packets import (
    Auth,
    Connect,
    Disconnect,
    LocalProtocolError,
    PingRequest,
    RemoteProtocolError,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)

cdef enum:
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

    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    TOPIC_NAME_INVALID = 0x90
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    QUOTA_EXCEEDED = 0x97

    # A bit of its own in the masks below, where the others are 1 << packet type.
    WILL = 0

    # How a property's value is written (section 2.2.2.2).
    BYTE = 1
    FLAG = 2            # a byte that is 0 or 1
    TWO_BYTES = 3
    FOUR_BYTES = 4
    VARIABLE = 5
    BINARY = 6
    STRING = 7
    STRING_PAIR = 8

    LAST_PROPERTY = 42
    SUBSCRIPTION_IDENTIFIER = 11
    USER_PROPERTY = 38
    # Nobody needs more, and each costs an object.
    USER_PROPERTIES_MAX = 256

    REMAINING_LENGTH_MAX = 268435455

cdef uint8_t[LAST_PROPERTY + 1] property_format
cdef uint32_t[LAST_PROPERTY + 1] property_senders     # mask of the packets it may come in


cdef void allow(int identifier, int value_format, uint32_t packets) noexcept:
    property_format[identifier] = value_format
    property_senders[identifier] = packets


cdef void fill_property_tables() noexcept:
    cdef uint32_t message = (1 << PUBLISH) | (1 << WILL)
    cdef uint32_t acknowledgements = (
        (1 << PUBACK) | (1 << PUBREC) | (1 << PUBREL) | (1 << PUBCOMP)
    )
    allow(1, FLAG, message)                                 # Payload Format Indicator
    allow(2, FOUR_BYTES, message)                           # Message Expiry Interval
    allow(3, STRING, message)                               # Content Type
    allow(8, STRING, message)                               # Response Topic
    allow(9, BINARY, message)                               # Correlation Data
    allow(11, VARIABLE, 1 << SUBSCRIBE)                     # Subscription Identifier
    allow(17, FOUR_BYTES, (1 << CONNECT) | (1 << DISCONNECT))  # Session Expiry Interval
    allow(18, STRING, 0)                                    # Assigned Client Identifier
    allow(19, TWO_BYTES, 0)                                 # Server Keep Alive
    allow(21, STRING, (1 << CONNECT) | (1 << AUTH))         # Authentication Method
    allow(22, BINARY, (1 << CONNECT) | (1 << AUTH))         # Authentication Data
    allow(23, FLAG, 1 << CONNECT)                           # Request Problem Information
    allow(24, FOUR_BYTES, 1 << WILL)                        # Will Delay Interval
    allow(25, FLAG, 1 << CONNECT)                           # Request Response Information
    allow(26, STRING, 0)                                    # Response Information
    allow(28, STRING, 0)                                    # Server Reference
    allow(31, STRING, acknowledgements | (1 << DISCONNECT) | (1 << AUTH))  # Reason String
    allow(33, TWO_BYTES, 1 << CONNECT)                      # Receive Maximum
    allow(34, TWO_BYTES, 1 << CONNECT)                      # Topic Alias Maximum
    allow(35, TWO_BYTES, 1 << PUBLISH)                      # Topic Alias
    allow(36, FLAG, 0)                                      # Maximum QoS
    allow(37, FLAG, 0)                                      # Retain Available
    allow(38, STRING_PAIR, 0xFFFFFFFF)                      # User Property
    allow(39, FOUR_BYTES, 1 << CONNECT)                     # Maximum Packet Size
    allow(40, FLAG, 0)                                      # Wildcard Subscription Available
    allow(41, FLAG, 0)                                      # Subscription Identifiers Available
    allow(42, FLAG, 0)                                      # Shared Subscription Available


fill_property_tables()


@cython.freelist(256)
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
        # Never the payload: it says where somebody is.
        return (
            f"Publish({self.topic!r}, {len(self.payload)} bytes, qos={self.qos}, "
            f"retain={self.retain}, dup={self.dup}, packet_id={self.packet_id}, "
            f"properties={self.properties!r})"
        )


@cython.freelist(256)
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


# --- reading ------------------------------------------------------------------------------------


cdef int malformed(str what) except -1:
    raise RemoteProtocolError(MALFORMED_PACKET, what)


cdef int violation(str what) except -1:
    raise RemoteProtocolError(PROTOCOL_ERROR, what)


cdef inline Py_ssize_t left(Reader* reader) noexcept:
    return reader.end - reader.position


cdef inline int read_byte(Reader* reader) except -1:
    if left(reader) < 1:
        malformed("packet ends too early")
    reader.position += 1
    return reader.position[-1]


cdef inline int read_two_bytes(Reader* reader) except -1:
    if left(reader) < 2:
        malformed("packet ends too early")
    reader.position += 2
    return (reader.position[-2] << 8) | reader.position[-1]


cdef inline long long read_four_bytes(Reader* reader) except -1:
    cdef long long high = read_two_bytes(reader)
    return (high << 16) | read_two_bytes(reader)


cdef int read_variable(Reader* reader) except -1:
    """A Variable Byte Integer (section 1.5.5), in its shortest form."""
    cdef int value = 0, shift = 0, byte
    while True:
        byte = read_byte(reader)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift > 0:
                malformed("variable byte integer is longer than needed")
            return value
        shift += 7
        if shift > 21:
            malformed("variable byte integer has more than four bytes")


cdef inline Py_ssize_t read_length(Reader* reader) except -1:
    """The two-byte length before a string or binary data, checked against what is there."""
    cdef Py_ssize_t size = read_two_bytes(reader)
    if left(reader) < size:
        malformed("string or binary data is longer than its packet")
    return size


cdef bytes read_binary(Reader* reader):
    cdef Py_ssize_t size = read_length(reader)
    reader.position += size
    return PyBytes_FromStringAndSize(<const char*> reader.position - size, size)


cdef str decode_string(const uint8_t* start, Py_ssize_t size):
    """Section 1.5.4: well-formed UTF-8, no surrogates, no U+0000."""
    if memchr(start, 0, size) != NULL:
        malformed("string has U+0000 in it")
    try:
        return PyUnicode_DecodeUTF8(<char*> start, size, NULL)
    except UnicodeDecodeError:
        malformed("string is not UTF-8")


cdef str read_string(Reader* reader):
    cdef Py_ssize_t size = read_length(reader)
    reader.position += size
    return decode_string(reader.position - size, size)


cdef int read_packet_id(Reader* reader) except -1:
    cdef int packet_id = read_two_bytes(reader)
    if packet_id == 0:
        violation("packet identifier 0")
    return packet_id


cdef int read_flag(Reader* reader, int identifier) except -1:
    cdef int value = read_byte(reader)
    if value > 1:
        violation(f"property {identifier} is {value}, not 0 or 1")
    return value


cdef int check_property(int identifier, object value) except -1:
    if identifier in (11, 33, 39) and value == 0:
        violation(f"property {identifier} is 0")
    if identifier == 35 and value == 0:
        raise RemoteProtocolError(TOPIC_ALIAS_INVALID, "topic alias 0")
    if identifier == 8 and (not value or "+" in value or "#" in value):
        violation("response topic is empty or has a wildcard")
    return 0


cdef dict read_properties(Reader* reader, int packet_type):
    """Properties of a packet (section 2.2.2), None if there are none."""
    cdef int size = read_variable(reader)
    cdef int identifier, value_format
    cdef Reader inner
    cdef dict properties
    cdef list pairs
    if size == 0:
        return None
    if left(reader) < size:
        malformed("properties are longer than their packet")
    inner.position = reader.position
    inner.end = reader.position + size
    reader.position = inner.end
    properties = {}
    while inner.position < inner.end:
        identifier = read_variable(&inner)
        if identifier > LAST_PROPERTY or property_format[identifier] == 0:
            malformed(f"unknown property {identifier}")
        if not property_senders[identifier] & (<uint32_t> 1 << packet_type):
            violation(f"property {identifier} does not belong into this packet")
        if identifier == USER_PROPERTY:
            pairs = properties.setdefault(USER_PROPERTY, [])
            if len(pairs) == USER_PROPERTIES_MAX:
                raise RemoteProtocolError(QUOTA_EXCEEDED, "too many user properties")
            name = read_string(&inner)
            pairs.append((name, read_string(&inner)))
            continue
        if identifier in properties:
            violation(f"property {identifier} stands twice")
        value_format = property_format[identifier]
        if value_format == FLAG:
            value = read_flag(&inner, identifier)
        elif value_format == TWO_BYTES:
            value = read_two_bytes(&inner)
        elif value_format == FOUR_BYTES:
            value = read_four_bytes(&inner)
        elif value_format == VARIABLE:
            value = read_variable(&inner)
        elif value_format == BINARY:
            value = read_binary(&inner)
        else:
            value = read_string(&inner)
        check_property(identifier, value)
        properties[identifier] = [value] if identifier == SUBSCRIPTION_IDENTIFIER else value
    return properties


cdef class Decoder:
    """Cuts the byte stream of one client into packets; what a server may send is refused.

    The caller owns the socket: it feeds `receive_data` and drains `next_packet` until that returns
    None. Memory grows with bytes received, never with a length that a peer merely announces.
    """

    def __init__(self, uint32_t packet_bytes_max=REMAINING_LENGTH_MAX + 5, int version=0):
        self.packet_bytes_max = packet_bytes_max
        self.version = version

    @property
    def buffered_bytes(self):
        """How much was received and not yet returned as packets."""
        if self._data is not None:
            return len(self._data) - self._position
        if self._partial is not None:
            return len(self._partial) - self._position
        return 0

    cpdef receive_data(self, bytes data):
        """Take what arrived."""
        if self._partial is not None:
            self._partial += data
        elif self._data is None:
            self._data = data
            self._position = 0
        else:
            self._keep_rest()
            self._partial += data

    def _keep_rest(self):
        """Move what is left into a buffer that can grow without being copied each time."""
        if self._data is not None:
            self._partial = bytearray(self._data[self._position:])
            self._data = None
        else:
            del self._partial[:self._position]
        self._position = 0

    cpdef next_packet(self):
        """The next whole packet. Raises RemoteProtocolError, and again on each later call."""
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
            # What can be refused by its first byte is refused before its body arrives.
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
            # MQTT 3.1 lets these be repeated with DUP.
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
        """Reason code and properties, both of which may be left out at the end of a packet."""
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
        # From here on answers can be given in the client's version.
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
        if not filters:
            violation("UNSUBSCRIBE without a topic filter")
        return Unsubscribe(packet_id, filters, properties)


# --- writing ------------------------------------------------------------------------------------


cdef int broken(str what) except -1:
    raise LocalProtocolError(PROTOCOL_ERROR, what)


cdef bytes variable(uint32_t value):
    cdef char[4] digits
    cdef int count = 0
    if value > REMAINING_LENGTH_MAX:
        broken("packet is too long")
    while True:
        digits[count] = value & 0x7F
        value >>= 7
        count += 1
        if not value:
            return PyBytes_FromStringAndSize(digits, count)
        digits[count - 1] |= 0x80


cdef bytes binary(bytes value):
    if len(value) > 0xFFFF:
        broken("string or binary data is longer than 65535 bytes")
    return len(value).to_bytes(2, "big") + value


cdef bytes encode_properties(dict properties):
    """Properties with their length, as every packet of MQTT 5 has them."""
    cdef bytearray body
    cdef int value_format
    if not properties:
        return b"\0"
    body = bytearray()
    for identifier, value in properties.items():
        if not 0 < identifier <= LAST_PROPERTY or not property_format[<int> identifier]:
            broken(f"unknown property {identifier}")
        value_format = property_format[<int> identifier]
        if value_format == STRING_PAIR:
            for name, text in value:
                body.append(identifier)
                body += binary(name.encode()) + binary(text.encode())
        elif value_format == VARIABLE:
            for number in value:
                body.append(identifier)
                body += variable(number)
        else:
            body.append(identifier)
            if value_format == FLAG:
                body.append(value)
            elif value_format == TWO_BYTES:
                body += value.to_bytes(2, "big")
            elif value_format == FOUR_BYTES:
                body += value.to_bytes(4, "big")
            elif value_format == BINARY:
                body += binary(value)
            else:
                body += binary(value.encode())
    return variable(len(body)) + bytes(body)


cdef bytes packet(int first, bytes body):
    return bytes((first,)) + variable(len(body)) + body


cpdef bytes encode_puback(int packet_id):
    """PUBACK with success, the same in all versions."""
    cdef char[4] answer
    answer[0] = PUBACK << 4
    answer[1] = 2
    answer[2] = packet_id >> 8
    answer[3] = packet_id & 0xFF
    return PyBytes_FromStringAndSize(answer, 4)


def encode_acknowledgement(
    int packet_type, int version, int packet_id, int reason_code=0, dict properties=None
):
    """PUBACK, PUBREC, PUBREL or PUBCOMP; MQTT 3 has neither reason code nor properties."""
    cdef int first = (packet_type << 4) | (2 if packet_type == PUBREL else 0)
    cdef bytes body = packet_id.to_bytes(2, "big")
    if version == 5 and (reason_code or properties):
        body += bytes((reason_code,))
        if properties:
            body += encode_properties(properties)
    return packet(first, body)


cpdef bytes encode_publish(
    int version, str topic, bytes payload, int qos, bint retain, bint dup, int packet_id,
    dict properties=None,
):
    """PUBLISH. Raises LocalProtocolError for what MQTT can't express."""
    cdef Py_ssize_t topic_size
    cdef const char* topic_start = PyUnicode_AsUTF8AndSize(topic, &topic_size)
    cdef bytes encoded = encode_properties(properties) if version == 5 else b""
    cdef Py_ssize_t remaining, properties_size = PyBytes_GET_SIZE(encoded)
    cdef Py_ssize_t payload_size = PyBytes_GET_SIZE(payload)
    cdef bytes result, length
    cdef char* position
    if topic_size > 0xFFFF or qos > 2 or bool(qos) != bool(packet_id):
        broken("PUBLISH that MQTT can't express")
    remaining = 2 + topic_size + (2 if qos else 0) + properties_size + payload_size
    if remaining > REMAINING_LENGTH_MAX:
        broken("packet is too long")
    length = variable(remaining)
    result = PyBytes_FromStringAndSize(NULL, 1 + PyBytes_GET_SIZE(length) + remaining)
    position = PyBytes_AS_STRING(result)
    position[0] = (PUBLISH << 4) | (dup << 3) | (qos << 1) | retain
    memcpy(position + 1, PyBytes_AS_STRING(length), PyBytes_GET_SIZE(length))
    position += 1 + PyBytes_GET_SIZE(length)
    position[0] = topic_size >> 8
    position[1] = topic_size & 0xFF
    memcpy(position + 2, topic_start, topic_size)
    position += 2 + topic_size
    if qos:
        position[0] = packet_id >> 8
        position[1] = packet_id & 0xFF
        position += 2
    memcpy(position, PyBytes_AS_STRING(encoded), properties_size)
    memcpy(position + properties_size, PyBytes_AS_STRING(payload), payload_size)
    return result


def encode_connack(
    int version, bint session_present, int reason_code, dict properties=None
):
    """CONNACK; `reason_code` is a CONNACK return code where `version` is below 5."""
    # MQTT 3.1 has a reserved byte where the session is announced since 3.1.1.
    cdef bytes body = bytes((session_present if version > 3 else 0, reason_code))
    return packet(CONNACK << 4, body + encode_properties(properties) if version == 5 else body)


def encode_suback(int version, int packet_id, list reason_codes, dict properties=None):
    """SUBACK; MQTT 3.1.1 has but one failure, 0x80."""
    cdef bytes body = packet_id.to_bytes(2, "big")
    if version == 5:
        return packet(SUBACK << 4, body + encode_properties(properties) + bytes(reason_codes))
    return packet(SUBACK << 4, body + bytes([min(code, 0x80) for code in reason_codes]))


def encode_unsuback(int version, int packet_id, list reason_codes, dict properties=None):
    """UNSUBACK; MQTT 3 has no reason codes in it."""
    cdef bytes body = packet_id.to_bytes(2, "big")
    if version == 5:
        body += encode_properties(properties) + bytes(reason_codes)
    return packet(UNSUBACK << 4, body)


def encode_pingresp():
    """PINGRESP."""
    return b"\xd0\x00"


def encode_disconnect(int reason_code=0, dict properties=None):
    """DISCONNECT of MQTT 5; a server of MQTT 3 has none to send."""
    if not properties:
        return packet(DISCONNECT << 4, bytes((reason_code,)) if reason_code else b"")
    return packet(DISCONNECT << 4, bytes((reason_code,)) + encode_properties(properties))


def encode_auth(int reason_code, dict properties=None):
    """AUTH of MQTT 5."""
    return packet(AUTH << 4, bytes((reason_code,)) + encode_properties(properties))


#: What `Decoder.next_packet` returns.
Packet = (
    Publish | Acknowledgement | Connect | Subscribe | Unsubscribe | PingRequest | Disconnect | Auth
)
