"""Properties of MQTT 5 (section 2.2.2)."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t

from gateway.mqtt.packets.packet_fields cimport (
    Reader,
    binary,
    broken,
    left,
    malformed,
    read_binary,
    read_byte,
    read_four_bytes,
    read_string,
    read_two_bytes,
    read_variable,
    variable,
    violation,
)
from gateway.mqtt.packets.packet_numbers cimport (
    AUTH,
    CONNECT,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    QUOTA_EXCEEDED,
    SUBSCRIBE,
    SUBSCRIPTION_IDENTIFIER,
    TOPIC_ALIAS_INVALID,
    USER_PROPERTY,
)

from gateway.mqtt.packets.packets import RemoteProtocolError

cdef enum:
    # Encodings of property values (section 2.2.2.2).
    BYTE = 1
    FLAG = 2            # a byte that is 0 or 1
    TWO_BYTES = 3
    FOUR_BYTES = 4
    VARIABLE = 5
    BINARY = 6
    STRING = 7
    STRING_PAIR = 8

    LAST_PROPERTY = 42
    # Each property costs an object, and no client needs more.
    USER_PROPERTIES_MAX = 256

cdef uint8_t[LAST_PROPERTY + 1] property_format
cdef uint32_t[LAST_PROPERTY + 1] property_senders     # mask of the packets that may contain it


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
    """Read the properties of a packet (section 2.2.2); return None if there are none."""
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


cdef bytes byte(int value):
    # Not bytearray.append: Cython 3.3 leaves out a macro that its C code needs.
    cdef char written = value
    return PyBytes_FromStringAndSize(&written, 1)


cdef bytes encode_properties(dict properties):
    """Encode properties with their length, as every packet of MQTT 5 contains them."""
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
                body += byte(identifier)
                body += binary(name.encode()) + binary(text.encode())
        elif value_format == VARIABLE:
            for number in value:
                body += byte(identifier)
                body += variable(number)
        else:
            body += byte(identifier)
            if value_format == FLAG:
                body += byte(value)
            elif value_format == TWO_BYTES:
                body += value.to_bytes(2, "big")
            elif value_format == FOUR_BYTES:
                body += value.to_bytes(4, "big")
            elif value_format == BINARY:
                body += binary(value)
            else:
                body += binary(value.encode())
    return variable(len(body)) + bytes(body)
