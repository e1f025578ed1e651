"""Numbers of MQTT that the state machines use; `packets.py` has all of them (a test compares)."""

cdef enum:
    # Packet types.
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

    # Reason codes.
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    TOPIC_NAME_INVALID = 0x90
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    QUOTA_EXCEEDED = 0x97

    # Property identifiers.
    MESSAGE_EXPIRY_INTERVAL = 2
    SUBSCRIPTION_IDENTIFIER = 11
    TOPIC_ALIAS = 35
    USER_PROPERTY = 38

    REMAINING_LENGTH_MAX = 268435455
    PACKET_ID_MAX = 0xFFFF
