"""A table of bytes, packets and expected errors, then properties that hold for any bytes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.mqtt.packets.decoder import Acknowledgement, Decoder, Packet, Publish
from gateway.mqtt.packets.encoder import (
    encode_acknowledgement,
    encode_auth,
    encode_connack,
    encode_disconnect,
    encode_pingresp,
    encode_puback,
    encode_publish,
    encode_suback,
    encode_unsuback,
)
from gateway.mqtt.packets.packet_fields import string_is_valid
from gateway.mqtt.packets.packets import (
    Auth,
    Connect,
    Disconnect,
    LocalProtocolError,
    PingRequest,
    Properties,
    PropertyId,
    ReasonCode,
    RemoteProtocolError,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)


@dataclasses.dataclass(frozen=True)
class Case:
    """Bytes of a client whose version is known (0: before its CONNECT)."""

    name: str
    version: int
    wire: bytes
    packet: Packet | None = None
    error: ReasonCode | None = None


MALFORMED = ReasonCode.MALFORMED_PACKET
VIOLATION = ReasonCode.PROTOCOL_ERROR

CASES = [
    # CONNECT
    Case(
        "3.1.1, clean session",
        0,
        b"\x10\x11\x00\x04MQTT\x04\x02\x00\x3c\x00\x05phone",
        Connect(4, "phone", True, 60),
    ),
    Case(
        "3.1 of OwnTracks Android",
        0,
        b"\x10\x2f\x00\x06MQIsdp\x03\xc4\x0e\x10\x00\x05phone\x00\x05topic\x00\x04will"
        b"\x00\x05alice\x00\x06secret",
        Connect(3, "phone", False, 3600, "alice", b"secret", Will("topic", b"will")),
    ),
    Case(
        "5 with a retained will of QoS 1",
        0,
        b"\x10\x21\x00\x04MQTT\x05\x2e\x00\x0a"
        b"\x08\x11\x00\x00\x00\x3c\x21\x00\x14\x00\x00"
        b"\x05\x18\x00\x00\x00\x05\x00\x01t\x00\x01w",
        Connect(
            5,
            "",
            True,
            10,
            None,
            None,
            Will("t", b"w", 1, True, {PropertyId.WILL_DELAY_INTERVAL: 5}),
            {PropertyId.SESSION_EXPIRY_INTERVAL: 60, PropertyId.RECEIVE_MAXIMUM: 20},
        ),
    ),
    Case(
        "empty client id, 3.1.1, clean",
        0,
        b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00",
        Connect(4, "", True, 0),
    ),
    Case(
        "empty client id without clean session",
        0,
        b"\x10\x0c\x00\x04MQTT\x04\x00\x00\x00\x00\x00",
        error=ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ),
    Case(
        "empty client id, 3.1",
        0,
        b"\x10\x0e\x00\x06MQIsdp\x03\x02\x00\x00\x00\x00",
        error=ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ),
    Case(
        "protocol level 6",
        0,
        b"\x10\x0c\x00\x04MQTT\x06\x02\x00\x00\x00\x00",
        error=ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ),
    Case("HTTP", 0, b"GET / HTTP/1.1\r\n", error=VIOLATION),
    Case("TLS hello", 0, b"\x16\x03\x01\x02\x00\x01", error=MALFORMED),
    Case(
        "other protocol name", 0, b"\x10\x0c\x00\x04HTTP\x04\x02\x00\x00\x00\x00", error=VIOLATION
    ),
    Case("PUBLISH before CONNECT", 0, b"\x30\x03\x00\x01t", error=VIOLATION),
    Case(
        "reserved connect flag",
        0,
        b"\x10\x0c\x00\x04MQTT\x04\x03\x00\x00\x00\x00",
        error=MALFORMED,
    ),
    Case(
        "will of QoS 3",
        0,
        b"\x10\x12\x00\x04MQTT\x04\x1e\x00\x00\x00\x00\x00\x01t\x00\x01w",
        error=MALFORMED,
    ),
    Case(
        "will flags without a will",
        0,
        b"\x10\x0c\x00\x04MQTT\x04\x22\x00\x00\x00\x00",
        error=MALFORMED,
    ),
    Case(
        "password without a user name, 3.1.1",
        0,
        b"\x10\x0f\x00\x04MQTT\x04\x42\x00\x00\x00\x00\x00\x01p",
        error=MALFORMED,
    ),
    Case(
        "password without a user name, 5",
        0,
        b"\x10\x10\x00\x04MQTT\x05\x42\x00\x00\x00\x00\x00\x00\x01p",
        Connect(5, "", True, 0, None, b"p"),
    ),
    Case("second CONNECT", 4, b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00", error=VIOLATION),
    Case(
        "bytes after CONNECT's end",
        0,
        b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x00\x00",
        error=MALFORMED,
    ),
    Case("CONNECT cut short", 0, b"\x10\x05\x00\x04MQT", error=MALFORMED),
    Case(
        "receive maximum 0",
        0,
        b"\x10\x10\x00\x04MQTT\x05\x02\x00\x00\x03\x21\x00\x00\x00\x00",
        error=VIOLATION,
    ),
    Case(
        "authentication data without a method",
        0,
        b"\x10\x11\x00\x04MQTT\x05\x02\x00\x00\x04\x16\x00\x01d\x00\x00",
        error=VIOLATION,
    ),
    Case(
        "will to a topic with a wildcard",
        0,
        b"\x10\x12\x00\x04MQTT\x04\x06\x00\x00\x00\x00\x00\x01#\x00\x01w",
        error=ReasonCode.TOPIC_NAME_INVALID,
    ),
    # PUBLISH
    Case("QoS 0", 4, b"\x30\x05\x00\x01thi", Publish("t", b"hi")),
    Case(
        "QoS 1, retained", 4, b"\x33\x07\x00\x01t\x00\x07hi", Publish("t", b"hi", 1, True, False, 7)
    ),
    Case("QoS 2, DUP", 3, b"\x3c\x05\x00\x01t\x00\x07", Publish("t", b"", 2, False, True, 7)),
    Case("UTF-8 topic", 4, b"\x30\x05\x00\x03\xe2\x82\xac", Publish("€", b"")),
    Case(
        "5, topic alias alone",
        5,
        b"\x32\x0a\x00\x00\x00\x01\x03\x23\x00\x02hi",
        Publish("", b"hi", 1, False, False, 1, {PropertyId.TOPIC_ALIAS: 2}),
    ),
    Case(
        "5, all properties",
        5,
        b"\x30\x2a\x00\x01t\x24\x01\x01\x02\x00\x00\x00\x09\x03\x00\x01c\x08\x00\x01r"
        b"\x09\x00\x01\xff\x23\x00\x01\x26\x00\x01a\x00\x01b\x26\x00\x01a\x00\x01bhi",
        Publish(
            "t",
            b"hi",
            properties={
                PropertyId.PAYLOAD_FORMAT_INDICATOR: 1,
                PropertyId.MESSAGE_EXPIRY_INTERVAL: 9,
                PropertyId.CONTENT_TYPE: "c",
                PropertyId.RESPONSE_TOPIC: "r",
                PropertyId.CORRELATION_DATA: b"\xff",
                PropertyId.TOPIC_ALIAS: 1,
                PropertyId.USER_PROPERTY: [("a", "b"), ("a", "b")],
            },
        ),
    ),
    Case("QoS 3", 4, b"\x36\x05\x00\x01t\x00\x01", error=MALFORMED),
    Case("DUP with QoS 0", 4, b"\x38\x03\x00\x01t", error=MALFORMED),
    Case("packet identifier 0", 4, b"\x32\x05\x00\x01t\x00\x00", error=VIOLATION),
    Case("no topic", 4, b"\x30\x02\x00\x00", error=ReasonCode.TOPIC_NAME_INVALID),
    Case("no topic and no alias", 5, b"\x30\x03\x00\x00\x00", error=VIOLATION),
    Case("topic with #", 4, b"\x30\x05\x00\x03a/#", error=ReasonCode.TOPIC_NAME_INVALID),
    Case("topic with +", 4, b"\x30\x05\x00\x03a/+", error=ReasonCode.TOPIC_NAME_INVALID),
    Case("topic with U+0000", 4, b"\x30\x04\x00\x02a\x00", error=MALFORMED),
    Case("topic that is not UTF-8", 4, b"\x30\x04\x00\x02\xc3\x28", error=MALFORMED),
    Case("surrogate in a topic", 4, b"\x30\x05\x00\x03\xed\xa0\x80", error=MALFORMED),
    Case("topic longer than the packet", 4, b"\x30\x03\x00\x09t", error=MALFORMED),
    Case(
        "topic alias 0",
        5,
        b"\x30\x07\x00\x01t\x03\x23\x00\x00",
        error=ReasonCode.TOPIC_ALIAS_INVALID,
    ),
    Case("property twice", 5, b"\x30\x0a\x00\x01t\x06\x23\x00\x01\x23\x00\x01", error=VIOLATION),
    Case("unknown property", 5, b"\x30\x06\x00\x01t\x02\x7f\x00", error=MALFORMED),
    Case("property of another packet", 5, b"\x30\x07\x00\x01t\x03\x21\x00\x01", error=VIOLATION),
    Case("payload format 2", 5, b"\x30\x06\x00\x01t\x02\x01\x02", error=VIOLATION),
    Case(
        "response topic with a wildcard", 5, b"\x30\x08\x00\x01t\x04\x08\x00\x01#", error=VIOLATION
    ),
    Case(
        "subscription identifier from a client",
        5,
        b"\x30\x06\x00\x01t\x02\x0b\x01",
        error=VIOLATION,
    ),
    Case("properties longer than the packet", 5, b"\x30\x04\x00\x01t\x09", error=MALFORMED),
    # acknowledgements
    Case("PUBACK", 4, b"\x40\x02\x00\x07", Acknowledgement(4, 7)),
    Case("PUBREC with reason", 5, b"\x50\x03\x00\x07\x80", Acknowledgement(5, 7, 0x80)),
    Case(
        "PUBREL with reason string",
        5,
        b"\x62\x08\x00\x07\x92\x04\x1f\x00\x01x",
        Acknowledgement(6, 7, 0x92, {PropertyId.REASON_STRING: "x"}),
    ),
    Case("PUBCOMP", 3, b"\x70\x02\x01\x00", Acknowledgement(7, 256)),
    Case("PUBREL repeated by 3.1", 3, b"\x6a\x02\x00\x01", Acknowledgement(6, 1)),
    Case("PUBREL with DUP", 4, b"\x6a\x02\x00\x01", error=MALFORMED),
    Case("PUBREL without its flag", 4, b"\x60\x02\x00\x01", error=MALFORMED),
    Case("PUBACK of packet 0", 4, b"\x40\x02\x00\x00", error=VIOLATION),
    Case("PUBACK with reason in 3.1.1", 4, b"\x40\x03\x00\x01\x00", error=MALFORMED),
    Case("PUBACK cut short", 4, b"\x40\x01\x00", error=MALFORMED),
    # SUBSCRIBE, UNSUBSCRIBE
    Case(
        "two filters",
        4,
        b"\x82\x0c\x00\x01\x00\x01a\x00\x00\x03b/#\x02",
        Subscribe(1, [SubscriptionRequest("a"), SubscriptionRequest("b/#", 2)]),
    ),
    Case(
        "5 with options and identifier",
        5,
        b"\x82\x0a\x00\x01\x03\x0b\x80\x01\x00\x01a\x1d",
        Subscribe(
            1,
            [SubscriptionRequest("a", 1, True, True, 1)],
            {PropertyId.SUBSCRIPTION_IDENTIFIER: [128]},
        ),
    ),
    Case("no filter", 4, b"\x82\x02\x00\x01", error=VIOLATION),
    Case("empty filter", 4, b"\x82\x05\x00\x01\x00\x00\x00", error=VIOLATION),
    Case("subscription of QoS 3", 4, b"\x82\x06\x00\x01\x00\x01a\x03", error=MALFORMED),
    Case("options in 3.1.1", 4, b"\x82\x06\x00\x01\x00\x01a\x04", error=MALFORMED),
    Case("reserved options", 5, b"\x82\x07\x00\x01\x00\x00\x01a\x40", error=MALFORMED),
    Case("retain handling 3", 5, b"\x82\x07\x00\x01\x00\x00\x01a\x30", error=VIOLATION),
    Case(
        "no local on a shared subscription",
        5,
        b"\x82\x10\x00\x01\x00\x00\x0a$share/g/a\x04",
        error=VIOLATION,
    ),
    Case(
        "subscription identifier 0",
        5,
        b"\x82\x09\x00\x01\x02\x0b\x00\x00\x01a\x00",
        error=VIOLATION,
    ),
    Case("SUBSCRIBE without its flag", 4, b"\x80\x06\x00\x01\x00\x01a\x00", error=MALFORMED),
    Case("filter without options", 4, b"\x82\x05\x00\x01\x00\x01a", error=MALFORMED),
    Case("UNSUBSCRIBE", 4, b"\xa2\x05\x00\x02\x00\x01a", Unsubscribe(2, ["a"])),
    Case("UNSUBSCRIBE from nothing", 5, b"\xa2\x03\x00\x02\x00", error=VIOLATION),
    # the rest
    Case("PINGREQ", 4, b"\xc0\x00", PingRequest()),
    Case("PINGREQ with a body", 4, b"\xc0\x01\x00", error=MALFORMED),
    Case("DISCONNECT", 4, b"\xe0\x00", Disconnect()),
    Case("DISCONNECT with a body, 3.1.1", 4, b"\xe0\x01\x00", error=MALFORMED),
    Case("DISCONNECT with will", 5, b"\xe0\x01\x04", Disconnect(4)),
    Case(
        "DISCONNECT with session expiry",
        5,
        b"\xe0\x07\x00\x05\x11\x00\x00\x00\x0a",
        Disconnect(0, {PropertyId.SESSION_EXPIRY_INTERVAL: 10}),
    ),
    Case("DISCONNECT with flags", 4, b"\xe1\x00", error=MALFORMED),
    Case(
        "AUTH",
        5,
        b"\xf0\x06\x18\x04\x15\x00\x01m",
        Auth(0x18, {PropertyId.AUTHENTICATION_METHOD: "m"}),
    ),
    Case("AUTH in 3.1.1", 4, b"\xf0\x00", error=MALFORMED),
    Case("packet type 0", 4, b"\x00\x00", error=MALFORMED),
    Case("CONNACK from a client", 4, b"\x20\x02\x00\x00", error=VIOLATION),
    Case("SUBACK from a client", 4, b"\x90\x03\x00\x01\x00", error=VIOLATION),
    Case("UNSUBACK from a client", 4, b"\xb0\x02\x00\x01", error=VIOLATION),
    Case("PINGRESP from a client", 4, b"\xd0\x00", error=VIOLATION),
    # framing
    Case("remaining length of five bytes", 4, b"\x30\xff\xff\xff\xff\x01", error=MALFORMED),
    Case("remaining length in more bytes than needed", 5, b"\xc0\x80\x00", error=MALFORMED),
    Case("the same in 3.1.1", 4, b"\xc0\x80\x00", PingRequest()),
    Case("too large", 4, b"\x30\x81\x08", error=ReasonCode.PACKET_TOO_LARGE),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bytes_of_a_client_are_understood_or_refused(case: Case) -> None:
    decoder = Decoder(1024, case.version)
    decoder.receive_data(case.wire)
    if case.error is None:
        assert decoder.next_packet() == case.packet
        assert decoder.next_packet() is None
        assert decoder.buffered_bytes == 0
        return
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.next_packet()
    assert caught.value.reason_code == case.error
    assert decoder.buffered_bytes == 0
    with pytest.raises(RemoteProtocolError):
        decoder.next_packet()


@pytest.mark.parametrize(
    ("encoded", "wire"),
    [
        (encode_connack(4, True, 0), "20020100"),
        (encode_connack(3, True, 5), "20020005"),
        (encode_connack(5, False, 0x87, {PropertyId.REASON_STRING: "no"}), "20080087051f00026e6f"),
        (
            encode_connack(
                5,
                False,
                0,
                {
                    PropertyId.RECEIVE_MAXIMUM: 100,
                    PropertyId.MAXIMUM_PACKET_SIZE: 262144,
                    PropertyId.MAXIMUM_QOS: 1,
                    PropertyId.ASSIGNED_CLIENT_IDENTIFIER: "x",
                },
            ),
            "20110000" + "0e" + "210064" + "2700040000" + "2401" + "12000178",
        ),
        (encode_puback(0x1234), "40021234"),
        (encode_acknowledgement(4, 4, 7), "40020007"),
        (encode_acknowledgement(4, 4, 7, 0x87), "40020007"),
        (encode_acknowledgement(4, 5, 7, 0x87), "4003000787"),
        (encode_acknowledgement(6, 5, 7), "62020007"),
        (
            encode_acknowledgement(7, 5, 7, 0x92, {PropertyId.REASON_STRING: "x"}),
            "7008000792041f000178",
        ),
        (encode_publish(4, "t", b"hi", 0, True, False, 0), "310500017468" + "69"),
        (encode_publish(4, "t", b"hi", 2, False, True, 9), "3c0700017400096869"),
        (encode_publish(5, "t", b"hi", 1, False, False, 9), "3208000174" + "0009" + "00" + "6869"),
        (
            encode_publish(
                5,
                "",
                b"",
                0,
                False,
                False,
                0,
                {PropertyId.TOPIC_ALIAS: 1, PropertyId.SUBSCRIPTION_IDENTIFIER: [1, 300]},
            ),
            "300b" + "0000" + "08" + "230001" + "0b01" + "0bac02",
        ),
        (encode_suback(4, 1, [0, 1, 2, 0x87]), "9006000100010280"),
        (encode_suback(5, 1, [0, 0x87]), "90050001000087"),
        (encode_unsuback(4, 1, [0]), "b0020001"),
        (encode_unsuback(5, 1, [0, 0x11]), "b0050001000011"),
        (encode_pingresp(), "d000"),
        (encode_disconnect(), "e000"),
        (encode_disconnect(0x8D), "e0018d"),
        (
            encode_disconnect(0x8E, {PropertyId.USER_PROPERTY: [("a", "b")]}),
            "e0098e072600016100" + "0162",
        ),
        (encode_auth(0x18, {PropertyId.AUTHENTICATION_DATA: b"\x00"}), "f006180416000100"),
    ],
)
def test_answers_of_the_server_have_these_bytes(encoded: bytes, wire: str) -> None:
    assert encoded.hex() == wire


def test_what_mqtt_cannot_express_is_our_error() -> None:
    with pytest.raises(LocalProtocolError):
        encode_publish(4, "t", b"", 1, False, False, 0)
    with pytest.raises(LocalProtocolError):
        encode_publish(4, "t" * 65536, b"", 0, False, False, 0)
    with pytest.raises(LocalProtocolError):
        encode_disconnect(0, {99: 1})


def test_a_length_that_is_only_announced_costs_nothing() -> None:
    decoder = Decoder(version=4)
    decoder.receive_data(b"\x30\xff\xff\xff\x7f" + b"x" * 10)
    assert decoder.next_packet() is None
    assert decoder.buffered_bytes == 15


def test_a_packet_before_connect_is_refused_by_its_first_byte() -> None:
    # CVE-2023-0809: memory was allocated for a first packet that is not CONNECT.
    decoder = Decoder()
    decoder.receive_data(b"\x30")
    with pytest.raises(RemoteProtocolError):
        decoder.next_packet()


def test_thousands_of_user_properties_are_refused() -> None:
    properties = b"\x26\x00\x00\x00\x00" * 300
    body = b"\x00\x01t" + b"\xdc\x0b" + properties
    decoder = Decoder(version=5)
    decoder.receive_data(b"\x30" + bytes([len(body) & 127 | 128, len(body) >> 7]) + body)
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.next_packet()
    assert caught.value.reason_code == ReasonCode.QUOTA_EXCEEDED


def test_neither_password_nor_payload_is_in_a_repr() -> None:
    assert "secret" not in repr(Connect(4, "phone", password=b"secret"))
    assert "secret" not in repr(Publish("t", b"secret"))


VALID = {
    version: b"".join(
        case.wire for case in CASES if case.packet is not None and case.version == version
    )
    for version in (4, 5)
}


@given(st.sampled_from([4, 5]), st.lists(st.integers(min_value=1, max_value=40), min_size=1))
def test_any_split_of_the_stream_gives_the_same_packets(version: int, sizes: list[int]) -> None:
    stream = VALID[version]
    expected = [
        case.packet for case in CASES if case.packet is not None and case.version == version
    ]
    decoder = Decoder(version=version)
    packets: list[Any] = []
    position = 0
    for index in range(len(stream)):
        step = sizes[index % len(sizes)]
        decoder.receive_data(stream[position : position + step])
        position += step
        while (packet := decoder.next_packet()) is not None:
            packets.append(packet)
        if position >= len(stream):
            break
    assert packets == expected
    assert decoder.buffered_bytes == 0


@given(st.lists(st.integers(min_value=1, max_value=200), min_size=2, max_size=6))
def test_packets_that_wait_are_not_lost_when_more_arrives(sizes: list[int]) -> None:
    stream = VALID[4] * 3
    decoder = Decoder(version=4)
    position = 0
    for size in sizes:
        decoder.receive_data(stream[position : position + size])
        position += size
        decoder.next_packet()
    assert decoder.buffered_bytes <= position
    decoder.receive_data(stream[position:])
    count = 0
    while decoder.next_packet() is not None:
        count += 1
    assert count > 0
    assert decoder.buffered_bytes == 0


@settings(max_examples=500)
@given(
    st.sampled_from([0, 3, 4, 5]),
    st.lists(
        st.one_of(st.binary(max_size=60), st.sampled_from([case.wire for case in CASES])),
        max_size=5,
    ),
)
def test_random_bytes_are_refused_or_understood_but_never_crash(
    version: int, chunks: list[bytes]
) -> None:
    decoder = Decoder(4096, version)
    try:
        for chunk in chunks:
            decoder.receive_data(chunk)
            while decoder.next_packet() is not None:
                pass
    except RemoteProtocolError as error:
        assert error.reason_code >= ReasonCode.UNSPECIFIED_ERROR


@settings(max_examples=500)
@given(st.data())
def test_damaged_packets_are_refused_or_understood_but_never_crash(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(CASES))
    wire = bytearray(case.wire)
    for _ in range(data.draw(st.integers(1, 4))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    decoder = Decoder(4096, case.version)
    decoder.receive_data(bytes(wire))
    try:
        while decoder.next_packet() is not None:
            pass
    except RemoteProtocolError as error:
        assert error.reason_code >= ReasonCode.UNSPECIFIED_ERROR


@given(
    st.sampled_from([4, 5]),
    st.text(min_size=1, max_size=20)
    .filter(lambda text: not set(text) & set("+#"))
    .filter(string_is_valid),
    st.binary(max_size=300),
    st.integers(0, 2),
    st.booleans(),
)
def test_a_publish_that_is_encoded_is_decoded_to_the_same(
    version: int, topic: str, payload: bytes, qos: int, retain: bool
) -> None:
    packet_id = 77 if qos else 0
    properties: Properties | None = (
        {PropertyId.USER_PROPERTY: [("k", topic)]} if version == 5 else None
    )
    decoder = Decoder(version=version)
    decoder.receive_data(
        encode_publish(version, topic, payload, qos, retain, False, packet_id, properties)
    )
    expected = Publish(topic, payload, qos, retain, False, packet_id, properties)
    assert decoder.next_packet() == expected
