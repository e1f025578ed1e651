"""Encodes the packets that a server sends. Section numbers are those of MQTT 5.0."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memcpy

from gateway.mqtt.packets.packet_fields cimport (
    broken,
    variable,
)
from gateway.mqtt.packets.packet_numbers cimport (
    AUTH,
    CONNACK,
    DISCONNECT,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    REMAINING_LENGTH_MAX,
    SUBACK,
    UNSUBACK,
)
from gateway.mqtt.packets.packet_properties cimport encode_properties


cdef bytes packet(int first, bytes body):
    return bytes((first,)) + variable(len(body)) + body


cpdef bytes encode_puback(int packet_id):
    """Encode a PUBACK with success, which is the same in all versions."""
    cdef char[4] answer
    answer[0] = PUBACK << 4
    answer[1] = 2
    answer[2] = packet_id >> 8
    answer[3] = packet_id & 0xFF
    return PyBytes_FromStringAndSize(answer, 4)


def encode_acknowledgement(
    int packet_type, int version, int packet_id, int reason_code=0, dict properties=None
):
    """Encode PUBACK, PUBREC, PUBREL or PUBCOMP; MQTT 3 has no reason codes and properties."""
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
    """Encode a PUBLISH; raises LocalProtocolError if MQTT cannot express it."""
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
    """Encode a CONNACK; below version 5, `reason_code` is a CONNACK return code."""
    # MQTT 3.1 has a reserved byte where later versions have the Session Present flag.
    cdef bytes body = bytes((session_present if version > 3 else 0, reason_code))
    return packet(CONNACK << 4, body + encode_properties(properties) if version == 5 else body)


def encode_suback(int version, int packet_id, list reason_codes, dict properties=None):
    """Encode a SUBACK; MQTT 3.1.1 has only one failure code, 0x80."""
    cdef bytes body = packet_id.to_bytes(2, "big")
    if version == 5:
        return packet(SUBACK << 4, body + encode_properties(properties) + bytes(reason_codes))
    return packet(SUBACK << 4, body + bytes([min(code, 0x80) for code in reason_codes]))


def encode_unsuback(int version, int packet_id, list reason_codes, dict properties=None):
    """Encode an UNSUBACK; it has no reason codes in MQTT 3."""
    cdef bytes body = packet_id.to_bytes(2, "big")
    if version == 5:
        body += encode_properties(properties) + bytes(reason_codes)
    return packet(UNSUBACK << 4, body)


def encode_pingresp():
    """Encode a PINGRESP."""
    return b"\xd0\x00"


def encode_disconnect(int reason_code=0, dict properties=None):
    """Encode a DISCONNECT of MQTT 5; servers of MQTT 3 do not send it."""
    if not properties:
        return packet(DISCONNECT << 4, bytes((reason_code,)) if reason_code else b"")
    return packet(DISCONNECT << 4, bytes((reason_code,)) + encode_properties(properties))


def encode_auth(int reason_code, dict properties=None):
    """Encode an AUTH of MQTT 5."""
    return packet(AUTH << 4, bytes((reason_code,)) + encode_properties(properties))
