from gateway.mqtt.packets.packets import Properties

def encode_puback(packet_id: int) -> bytes:
    """Encode a PUBACK with success, which is the same in all versions."""

def encode_acknowledgement(
    packet_type: int,
    version: int,
    packet_id: int,
    reason_code: int = 0,
    properties: Properties | None = None,
) -> bytes:
    """Encode PUBACK, PUBREC, PUBREL or PUBCOMP; MQTT 3 has no reason codes and properties."""

def encode_publish(
    version: int,
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    properties: Properties | None = None,
) -> bytes:
    """Encode a PUBLISH; raises LocalProtocolError if MQTT cannot express it."""

def encode_connack(
    version: int, session_present: bool, reason_code: int, properties: Properties | None = None
) -> bytes:
    """Encode a CONNACK; below version 5, `reason_code` is a CONNACK return code."""

def encode_suback(
    version: int, packet_id: int, reason_codes: list[int], properties: Properties | None = None
) -> bytes:
    """Encode a SUBACK; MQTT 3.1.1 has only one failure code, 0x80."""

def encode_unsuback(
    version: int, packet_id: int, reason_codes: list[int], properties: Properties | None = None
) -> bytes:
    """Encode an UNSUBACK; it has no reason codes in MQTT 3."""

def encode_pingresp() -> bytes:
    """Encode a PINGRESP."""

def encode_disconnect(reason_code: int = 0, properties: Properties | None = None) -> bytes:
    """Encode a DISCONNECT of MQTT 5; servers of MQTT 3 do not send it."""

def encode_auth(reason_code: int, properties: Properties | None = None) -> bytes:
    """Encode an AUTH of MQTT 5."""
