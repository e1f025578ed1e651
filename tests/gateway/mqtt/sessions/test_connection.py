"""The state machines of connection, session and router together, without sockets."""

from __future__ import annotations

import pytest

from gateway.mqtt.packets.decoder import Publish
from gateway.mqtt.packets.encoder import (
    encode_acknowledgement,
    encode_connack,
    encode_disconnect,
    encode_pingresp,
    encode_puback,
    encode_publish,
    encode_suback,
)
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.packets import PacketType, Properties, PropertyId, ReasonCode
from gateway.mqtt.sessions.link import CLOSED, CONNECTED
from gateway.mqtt.settings import Settings
from tests.gateway.mqtt.in_memory import User, Wire, new_router, split_packets


def publish(
    topic: str, payload: bytes = b"hi", qos: int = 1, packet_id: int = 1, version: int = 4
) -> bytes:
    return encode_publish(version, topic, payload, qos, False, False, packet_id if qos else 0)


def closed_with(wire: Wire) -> int:
    assert wire.connection.state == CLOSED
    assert wire.connection.closing is not None
    return wire.connection.closing[0]


# --- CONNECT -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4])
def test_connack_of_mqtt_3_has_no_properties(version: int) -> None:
    wire = Wire(new_router())
    assert wire.connect(version=version) == b"\x20\x02\x00\x00"


def test_connack_of_mqtt_5_announces_the_limits() -> None:
    wire = Wire(new_router(Settings(session_expiry_max_s=100, keep_alive_max_s=60)))
    connack = wire.connect(
        "", version=5, keep_alive=0, properties=b"\x11\xff\xff\xff\xff", clean=True
    )
    assert connack == encode_connack(
        5,
        False,
        0,
        {
            PropertyId.RECEIVE_MAXIMUM: 100,
            PropertyId.MAXIMUM_PACKET_SIZE: 256 * 1024,
            PropertyId.TOPIC_ALIAS_MAXIMUM: 16,
            PropertyId.SESSION_EXPIRY_INTERVAL: 100,
            PropertyId.ASSIGNED_CLIENT_IDENTIFIER: "assigned",
            PropertyId.SERVER_KEEP_ALIVE: 60,
        },
    )


def test_a_refusal_is_said_in_the_clients_version() -> None:
    for head, answer in (
        (b"\x10\x11\x00\x04MQTT\x04\x02\x00\x00\x00\x05phone", b"\x20\x02\x00\x04"),
        (
            b"\x10\x12\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x05phone",
            encode_connack(5, False, 0x86, {PropertyId.REASON_STRING: "no"}),
        ),
    ):
        wire = Wire(new_router())
        wire.send(head)
        wire.connection.refuse(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "no")
        assert wire.received() == answer
        assert closed_with(wire) == ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_an_unknown_protocol_level_is_answered_so_that_any_client_understands() -> None:
    wire = Wire(new_router())
    assert wire.send(b"\x10\x0c\x00\x04MQTT\x09\x02\x00\x00\x00\x00") == []
    assert wire.received() == b"\x20\x02\x00\x01"
    assert closed_with(wire) == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION


@pytest.mark.parametrize(
    "first",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x30\x03\x00\x01t", b"\xc0\x00", b"\x20\x02\x00\x00"],
)
def test_whoever_does_not_begin_with_connect_is_closed_without_an_answer(first: bytes) -> None:
    wire = Wire(new_router())
    assert wire.send(first) == []
    assert wire.received() == b""
    assert wire.connection.state == CLOSED


def test_a_second_connect_is_a_protocol_error() -> None:
    wire = Wire(new_router())
    wire.connect()
    wire.send(b"\x10\x11\x00\x04MQTT\x04\x02\x00\x00\x00\x05phone")
    assert closed_with(wire) == ReasonCode.PROTOCOL_ERROR


def test_nothing_is_looked_at_before_the_client_is_known() -> None:
    wire = Wire(new_router())
    connect = b"\x10\x11\x00\x04MQTT\x04\x02\x00\x00\x00\x05phone"
    (packet,) = wire.send(connect + publish("t"))
    assert wire.connection.buffered_bytes > 0
    wire.connection.accept(packet, User("alice"), 0.0, assigned_client_id="")
    (event,) = wire.send(b"")
    assert event == Publish("t", b"hi", 1, packet_id=1)


def test_who_sends_no_connect_in_time_is_closed() -> None:
    router = new_router()
    wire = Wire(router)
    router.advance(9.9)
    assert wire.connection.state != CLOSED
    router.advance(10.5)
    assert wire.connection.state == CLOSED


# --- keep-alive ----------------------------------------------------------------------------------


def test_silence_of_one_and_a_half_keep_alives_ends_the_connection() -> None:
    router = new_router()
    wire = Wire(router)
    wire.connect(keep_alive=10, version=5)
    wire.now = 10.0
    wire.send(b"\xc0\x00")
    assert wire.received() == encode_pingresp()
    router.advance(24.9)
    assert wire.connection.state == CONNECTED
    router.advance(25.5)
    assert closed_with(wire) == ReasonCode.KEEP_ALIVE_TIMEOUT
    (packet,) = split_packets(wire.received())
    assert packet[0] == 0xE0
    assert packet[1][0] == ReasonCode.KEEP_ALIVE_TIMEOUT


def test_keep_alive_0_means_no_limit() -> None:
    router = new_router()
    wire = Wire(router)
    wire.connect(keep_alive=0)
    router.advance(1e6)
    assert wire.connection.state == CONNECTED


def test_a_client_that_we_do_not_read_is_not_called_silent() -> None:
    router = new_router(Settings(publishes_in_flight_max=1))
    wire = Wire(router)
    wire.connect(keep_alive=10)
    (packet,) = wire.send(publish("a/b"))
    router.advance(60.0)
    assert wire.connection.state == CONNECTED
    wire.connection.acknowledge(packet, 0, 60.0)
    router.advance(120.0)
    assert wire.connection.state == CLOSED


# --- PUBLISH to the server -----------------------------------------------------------------------


def test_acknowledgements_leave_in_the_order_of_the_packets() -> None:
    wire = Wire(new_router())
    wire.connect()
    first, second, third = wire.send(
        publish("t", packet_id=1) + publish("t", qos=0) + publish("t", packet_id=3)
    )
    wire.connection.acknowledge(third, 0, 0.0)
    assert wire.received() == b""
    wire.connection.acknowledge(first, 0, 0.0)
    assert wire.received() == encode_puback(1)
    wire.connection.acknowledge(second, 0, 0.0)
    assert wire.received() == encode_puback(3)


def test_a_failure_is_told_to_mqtt_5_and_hidden_from_mqtt_3() -> None:
    for version, answer in ((4, encode_puback(1)), (5, b"\x40\x03\x00\x01\x87")):
        wire = Wire(new_router())
        wire.connect(version=version)
        (packet,) = wire.send(publish("t", version=version))
        wire.connection.acknowledge(packet, ReasonCode.NOT_AUTHORIZED, 0.0)
        assert wire.received() == answer


def test_qos_2_is_stored_once_however_often_it_is_sent() -> None:
    router = new_router()
    wire = Wire(router)
    wire.connect(clean=False)
    message = publish("t", qos=2, packet_id=7)
    (packet,) = wire.send(message)
    assert wire.send(message) == []  # not answered before it is stored
    assert wire.received() == b""
    wire.connection.acknowledge(packet, 0, 0.0)
    pubrec = encode_acknowledgement(PacketType.PUBREC, 4, 7)
    assert wire.received() == pubrec
    wire.lose()

    again = Wire(router)
    again.connect(clean=False)
    assert again.send(message) == []
    assert again.received() == pubrec
    again.send(encode_acknowledgement(PacketType.PUBREL, 4, 7))
    assert again.received() == encode_acknowledgement(PacketType.PUBCOMP, 4, 7)
    assert len(again.send(message)) == 1  # the identifier is free again


def test_qos_2_that_waits_for_the_log_is_not_taken_again_on_the_next_connection() -> None:
    router = new_router()
    subscriber = Wire(router)
    subscriber.connect("subscriber")
    subscriber.subscribe("t")
    wire = Wire(router)
    wire.connect(clean=False)
    message = publish("t", qos=2, packet_id=7)
    (packet,) = wire.send(message)
    wire.lose()
    again = Wire(router)
    again.connect(clean=False)
    assert again.send(message) == []
    (behind,) = again.send(publish("t", packet_id=8))
    again.connection.acknowledge(behind, 0, 0.0)
    assert again.received() == b""  # in the order of the packets
    wire.connection.acknowledge(packet, 0, 0.0)
    pubrec = encode_acknowledgement(PacketType.PUBREC, 4, 7)
    assert again.received() == pubrec + encode_puback(8)
    assert len(split_packets(subscriber.received())) == 2
    assert again.send(message) == []
    assert again.received() == pubrec


def test_qos_2_that_the_log_refused_is_taken_again() -> None:
    router = new_router()
    wire = Wire(router)
    wire.connect(clean=False)
    message = publish("t", qos=2, packet_id=7)
    packet, behind = wire.send(message + publish("t", qos=2, packet_id=8))
    wire.connection.acknowledge(behind, 0, 0.0)
    wire.lose()
    second = Wire(router)
    second.connect(clean=False)
    assert second.send(message) == []
    wire.connection.fail(packet, 0.0)
    assert second.connection.state == CLOSED and second.received() == b""
    second.lose()
    third = Wire(router)
    third.connect(clean=False)
    (packet,) = third.send(message + publish("t", qos=2, packet_id=8))
    assert packet.packet_id == 7
    third.connection.acknowledge(packet, 0, 0.0)
    answers = [int.from_bytes(body, "big") for _, body in split_packets(third.received())]
    assert sorted(answers) == [7, 8]


def test_what_came_behind_a_repetition_is_passed_on_when_that_connection_ends_too() -> None:
    router = new_router()
    subscriber = Wire(router)
    subscriber.connect("subscriber")
    subscriber.subscribe("t")
    first = Wire(router)
    first.connect(clean=False)
    message = publish("t", qos=2, packet_id=7)
    (packet,) = first.send(message)
    second = Wire(router)
    second.connect(clean=False)
    (behind,) = second.send(message + publish("t", qos=2, packet_id=8))
    second.connection.acknowledge(behind, 0, 0.0)
    third = Wire(router)
    third.connect(clean=False)
    assert third.send(message) == []
    first.connection.acknowledge(packet, 0, 0.0)
    assert len(split_packets(subscriber.received())) == 2
    assert third.received() == encode_acknowledgement(PacketType.PUBREC, 4, 7)


def test_pubrel_of_an_unknown_packet_is_answered() -> None:
    wire = Wire(new_router())
    wire.connect(version=5)
    wire.send(encode_acknowledgement(PacketType.PUBREL, 5, 9))
    assert wire.received() == encode_acknowledgement(PacketType.PUBCOMP, 5, 9, 0x92)


def test_too_many_qos_2_messages_that_are_never_released_end_the_connection() -> None:
    wire = Wire(new_router(Settings(publishes_in_flight_max=3)))
    wire.connect(version=5)
    for packet_id in (1, 2, 3):
        (packet,) = wire.send(publish("t", qos=2, packet_id=packet_id, version=5))
        wire.connection.acknowledge(packet, 0, 0.0)
    wire.send(publish("t", qos=2, packet_id=4, version=5))
    assert closed_with(wire) == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_a_connection_with_too_much_in_flight_is_not_looked_at_until_half_is_stored() -> None:
    wire = Wire(new_router(Settings(publishes_in_flight_max=4)))
    wire.connect()
    events = wire.send(b"".join(publish("t", packet_id=number) for number in range(1, 8)))
    assert len(events) == 4
    assert wire.connection.blocked
    wire.connection.acknowledge(events[0], 0, 0.0)
    assert wire.connection.blocked
    wire.connection.acknowledge(events[1], 0, 0.0)
    assert not wire.connection.blocked
    assert [event.packet_id for event in wire.send(b"")] == [5, 6]


def test_a_topic_alias_stands_for_its_topic() -> None:
    wire = Wire(new_router(Settings(topic_aliases_max=2)))
    wire.connect(version=5)
    alias = {int(PropertyId.TOPIC_ALIAS): 2}
    events = wire.send(
        encode_publish(5, "a/b", b"1", 0, False, False, 0, {**alias})
        + encode_publish(5, "", b"2", 0, False, False, 0, {**alias})
        + encode_publish(5, "c", b"3", 0, False, False, 0, {**alias})
        + encode_publish(5, "", b"4", 0, False, False, 0, {**alias})
    )
    assert [event.topic for event in events] == ["a/b", "a/b", "c", "c"]


@pytest.mark.parametrize(
    ("alias", "reason"), [(1, ReasonCode.PROTOCOL_ERROR), (3, ReasonCode.TOPIC_ALIAS_INVALID)]
)
def test_an_alias_that_was_not_set_or_is_too_high_is_refused(alias: int, reason: int) -> None:
    wire = Wire(new_router(Settings(topic_aliases_max=2)))
    wire.connect(version=5)
    wire.send(encode_publish(5, "", b"", 0, False, False, 0, {PropertyId.TOPIC_ALIAS: alias}))
    assert closed_with(wire) == reason


def test_a_topic_of_a_thousand_levels_is_refused() -> None:
    wire = Wire(new_router())
    wire.connect()
    wire.send(publish("/" * 1000))
    assert closed_with(wire) == ReasonCode.TOPIC_NAME_INVALID


# --- messages to the client ----------------------------------------------------------------------


def pair(version: int = 4, **options: object) -> tuple[Wire, Wire]:
    router = new_router(Settings(**options))  # type: ignore[arg-type]
    publisher, subscriber = Wire(router), Wire(router)
    publisher.connect("publisher", version=version)
    subscriber.connect("subscriber", clean=False, version=version)
    return publisher, subscriber


def deliver(publisher: Wire, topic: str, payload: bytes = b"hi", qos: int = 1) -> None:
    version = publisher.connection.version
    for packet in publisher.send(publish(topic, payload, qos, 9, version)):
        publisher.connection.acknowledge(packet, 0, publisher.now)


def test_a_message_is_delivered_when_it_is_stored_with_the_lower_qos() -> None:
    publisher, subscriber = pair()
    subscriber.subscribe("a/+", qos=1)
    (packet,) = publisher.send(publish("a/b", qos=2, packet_id=5))
    assert subscriber.received() == b""
    publisher.connection.acknowledge(packet, 0, 0.0)
    assert subscriber.received() == encode_publish(4, "a/b", b"hi", 1, False, False, 1)


def test_what_is_not_allowed_or_not_understood_is_not_delivered() -> None:
    publisher, subscriber = pair()
    subscriber.subscribe("a/+")
    for code in (ReasonCode.NOT_AUTHORIZED, ReasonCode.NO_MATCHING_SUBSCRIBERS):
        (packet,) = publisher.send(publish("a/b"))
        publisher.connection.acknowledge(packet, code, 0.0)
    assert subscriber.received() == b""


def test_an_unacknowledged_message_is_sent_again_with_dup_on_reconnect() -> None:
    publisher, subscriber = pair()
    subscriber.subscribe("a/b")
    deliver(publisher, "a/b")
    subscriber.lose()
    deliver(publisher, "a/b", b"later")
    again = Wire(subscriber.router)
    sent = again.connect("subscriber", clean=False)
    assert sent == (
        b"\x20\x02\x01\x00"
        + encode_publish(4, "a/b", b"hi", 1, False, True, 1)
        + encode_publish(4, "a/b", b"later", 1, False, False, 2)
    )
    again.send(encode_puback(1) + encode_puback(2))
    again.lose()
    third = Wire(subscriber.router)
    assert third.connect("subscriber", clean=False) == b"\x20\x02\x01\x00"


def test_qos_2_to_the_client_is_resumed_where_it_stopped() -> None:
    publisher, subscriber = pair()
    subscriber.subscribe("a/b", qos=2)
    deliver(publisher, "a/b", qos=2)
    assert split_packets(subscriber.received())[0][0] >> 4 == PacketType.PUBLISH
    subscriber.send(encode_acknowledgement(PacketType.PUBREC, 4, 1))
    assert subscriber.received() == encode_acknowledgement(PacketType.PUBREL, 4, 1)
    subscriber.lose()
    again = Wire(subscriber.router)
    connack = b"\x20\x02\x01\x00"
    assert again.connect("subscriber", clean=False) == connack + encode_acknowledgement(
        PacketType.PUBREL, 4, 1
    )
    again.send(encode_acknowledgement(PacketType.PUBCOMP, 4, 1))
    session = again.connection.session
    assert session is not None
    assert session.in_flight is None


def test_the_window_of_the_client_is_kept_and_what_waits_follows() -> None:
    router = new_router()
    publisher, subscriber = Wire(router), Wire(router)
    publisher.connect("publisher")
    subscriber.connect("subscriber", version=5, properties=b"\x21\x00\x02")
    subscriber.subscribe("a/#")
    for number in range(4):
        deliver(publisher, f"a/{number}")
    assert len(split_packets(subscriber.received())) == 2
    subscriber.send(encode_puback(1))
    packets = split_packets(subscriber.received())
    assert [packet[1][2:5] for packet in packets] == [b"a/2"]


def test_a_queue_is_bounded_by_messages_and_by_bytes() -> None:
    publisher, subscriber = pair(queued_messages_max=5, queued_bytes_max=30)
    subscriber.subscribe("a/#")
    subscriber.lose()
    session = next(
        item for item in publisher.router.sessions.values() if item.client_id == "subscriber"
    )
    for number in range(10):
        deliver(publisher, f"a/{number}", b"x")
    assert session.queued() == 5
    for number in range(10):
        deliver(publisher, f"a/{number}", b"x" * 20)
    assert session.queued_bytes <= 30
    assert publisher.router.counters["deliveries_dropped"] >= 10


def test_of_addresses_only_the_newest_waits() -> None:
    publisher, subscriber = pair()
    subscriber.subscribe("a/#")
    subscriber.lose()
    router = publisher.router
    for number in range(50):
        for topic in ("a/1", "a/2"):
            router.publish(Message(topic, b"%d" % number, 1, latest_only=True), None, 0.0)
    again = Wire(router)
    packets = split_packets(again.connect("subscriber", clean=False))[1:]
    assert [packet[1][-2:] for packet in packets] == [b"49", b"49"]


def test_a_clean_session_forgets_everything() -> None:
    publisher, subscriber = pair()
    subscriber.subscribe("a/b")
    subscriber.lose()
    deliver(publisher, "a/b")
    again = Wire(subscriber.router)
    assert again.connect("subscriber", clean=True) == b"\x20\x02\x00\x00"
    deliver(publisher, "a/b")
    assert again.received() == b""
    again.lose()
    assert ("alice", "subscriber") not in publisher.router.sessions


def test_retained_messages_follow_the_suback() -> None:
    publisher, subscriber = pair()
    publisher.router.publish(Message("a/b", b"last", 1, True), None, 0.0)
    sent = subscriber.subscribe("a/#")
    assert sent == encode_suback(4, 1, [1]) + encode_publish(4, "a/b", b"last", 1, True, False, 1)


def test_more_retained_messages_than_fit_are_sent_as_the_client_takes_them() -> None:
    publisher, subscriber = pair(
        deliveries_in_flight_max=10, queued_messages_max=5, outgoing_bytes_max=500
    )
    for number in range(200):
        publisher.router.publish(Message(f"a/{number}", b"x" * 10, 1, True), None, 0.0)
    subscriber.send(b"\x82\x08\x00\x01\x00\x03a/#\x01")
    topics = set()
    while packets := [
        packet for packet in split_packets(subscriber.received()) if packet[0] >> 4 == 3
    ]:
        assert len(packets) <= 10
        for _, body in packets:
            size = int.from_bytes(body[:2], "big")
            topics.add(body[2 : 2 + size])
            subscriber.send(encode_puback(int.from_bytes(body[2 + size : 4 + size], "big")))
    assert len(topics) == 200
    session = subscriber.connection.session
    assert session is not None
    assert session.backlog is None


def test_qos_0_is_dropped_and_qos_1_waits_while_the_client_does_not_read() -> None:
    publisher, subscriber = pair()
    subscriber.subscribe("a/#")
    subscriber.connection.pause_writing(0.0)
    deliver(publisher, "a/0", qos=0)
    deliver(publisher, "a/1", qos=1)
    assert subscriber.received() == b""
    subscriber.connection.resume_writing(1.0)
    (packet,) = split_packets(subscriber.received())
    assert packet[1][2:5] == b"a/1"


def test_a_reader_that_takes_nothing_for_a_minute_is_cut_off() -> None:
    _publisher, subscriber = pair()
    subscriber.connection.pause_writing(0.0)
    subscriber.router.advance(59.0)
    assert subscriber.connection.state == CONNECTED
    subscriber.router.advance(61.0)
    assert subscriber.connection.abort


def test_mqtt_5_delivers_properties_identifiers_and_the_rest_of_the_expiry() -> None:
    router = new_router()
    publisher, subscriber = Wire(router), Wire(router)
    publisher.connect("publisher", version=5)
    subscriber.connect("subscriber", version=5)
    subscriber.send(b"\x82\x09\x00\x01\x02\x0b\x05\x00\x01t\x00")
    subscriber.received()
    sent: Properties = {
        PropertyId.USER_PROPERTY: [("k", "v")],
        PropertyId.MESSAGE_EXPIRY_INTERVAL: 9,
    }
    (packet,) = publisher.send(encode_publish(5, "t", b"", 0, False, False, 0, sent))
    publisher.connection.acknowledge(packet, 0, 0.0)
    assert subscriber.received() == encode_publish(
        5,
        "t",
        b"",
        0,
        False,
        False,
        0,
        {
            PropertyId.USER_PROPERTY: [("k", "v")],
            PropertyId.SUBSCRIPTION_IDENTIFIER: [5],
            PropertyId.MESSAGE_EXPIRY_INTERVAL: 9,
        },
    )


def test_the_rest_of_an_expiry_fits_into_its_property() -> None:
    router = new_router()
    router.publish(Message("a/b", b"kept", 1, True, expires_at=2.0**40), None, 0.0)
    subscriber = Wire(router)
    subscriber.connect("subscriber", version=5)
    _, (_, body) = split_packets(subscriber.subscribe("a/b"))
    assert body[7:] == b"\x05\x02\xff\xff\xff\xffkept"


def test_a_message_that_expired_while_it_waited_is_not_delivered() -> None:
    _publisher, subscriber = pair()
    subscriber.subscribe("a/b")
    subscriber.lose()
    subscriber.router.publish(Message("a/b", b"old", 1, expires_at=5.0), None, 0.0)
    subscriber.router.publish(Message("a/b", b"new", 1, expires_at=50.0), None, 0.0)
    again = Wire(subscriber.router, now=10.0)
    packets = split_packets(again.connect("subscriber", clean=False))[1:]
    assert [packet[1][-3:] for packet in packets] == [b"new"]


def test_a_message_that_cannot_be_encoded_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    router = new_router()
    too_long: Properties = {PropertyId.CONTENT_TYPE: "x" * 70_000}
    for message in (
        Message("a/1", b"before", 1, True),
        Message("a/2", b"odd", 1, True, too_long),
        Message("a/3", b"behind", 1, True),
    ):
        router.publish(message, None, 0.0)
    subscriber = Wire(router)
    subscriber.connect("subscriber", version=5, properties=b"\x22\0\2")
    retained = split_packets(subscriber.subscribe("a/#"))[1:]
    router.publish(Message("a/2", b"live", 1, False, too_long), None, 0.0)
    assert not subscriber.received()
    router.publish(Message("a/4", b"live", 1), None, 0.0)
    live = split_packets(subscriber.received())
    # The alias that the message would have had goes to another topic.
    assert [(body[:5], body[7:]) for _, body in (*retained, *live)] == [
        (b"\0\3a/1", b"\x03\x23\0\x01before"),
        (b"\0\3a/3", b"\x03\x23\0\x02behind"),
        (b"\0\3a/4", b"\0live"),
    ]
    assert subscriber.connection.state == CONNECTED
    assert router.counters["deliveries_dropped"] == 2
    (line,) = caplog.records
    assert "a message of 'a/2' is left out" in line.getMessage()


def test_a_message_larger_than_the_client_takes_is_left_out() -> None:
    router = new_router()
    subscriber = Wire(router)
    subscriber.connect(version=5, properties=b"\x27\x00\x00\x00\x20\x22\x00\x05")
    subscriber.subscribe("a/#")
    router.publish(Message("a/b", b"x" * 100, 1), None, 0.0)
    router.publish(Message("a/b", b"small", 1), None, 0.0)
    (packet,) = split_packets(subscriber.received())
    assert packet[1].endswith(b"small")
    assert packet[1][2:5] == b"a/b"  # the client never learned the alias of the first message


def test_topics_that_come_again_are_sent_as_aliases_to_those_who_allow_it() -> None:
    router = new_router()
    subscriber = Wire(router)
    subscriber.connect(version=5, properties=b"\x22\x00\x01")
    subscriber.subscribe("a/#", qos=0)
    for topic in ("a/1", "a/1", "a/2"):
        router.publish(Message(topic, b"", 0), None, 0.0)
    topics = [body[2 : 2 + body[1]] for _, body in split_packets(subscriber.received())]
    assert topics == [b"a/1", b"", b"a/2"]


# --- sessions ------------------------------------------------------------------------------------


def test_the_newer_connection_of_a_client_takes_over() -> None:
    router = new_router()
    first, second = Wire(router), Wire(router)
    first.connect(version=5, properties=b"\x11\x00\x00\x00\x3c")
    first.subscribe("a/b")
    assert split_packets(second.connect(clean=False, version=5))[0][1][0] == 1
    assert closed_with(first) == ReasonCode.SESSION_TAKEN_OVER
    (packet,) = split_packets(first.received())
    assert packet == (
        0xE0,
        encode_disconnect(
            ReasonCode.SESSION_TAKEN_OVER,
            {PropertyId.REASON_STRING: "another connection has the same client id"},
        )[2:],
    )
    first.lose()
    router.publish(Message("a/b", b"hi", 1), None, 0.0)
    assert second.received() != b""


def test_a_client_id_of_another_user_is_another_session() -> None:
    router = new_router()
    alice, mallory = Wire(router), Wire(router)
    alice.connect("phone", User("alice"), clean=False)
    alice.subscribe("owntracks/+/+")
    mallory.connect("phone", User("mallory"), clean=False)
    assert alice.connection.state == CONNECTED
    router.publish(Message("owntracks/alice/phone", b"x", 1), None, 0.0)
    assert mallory.received() == b""
    assert alice.received() != b""


def test_a_token_of_one_device_does_not_inherit_the_subscriptions_of_its_user() -> None:
    router = new_router()
    wire = Wire(router)
    wire.connect("phone", User("alice"), clean=False)
    wire.subscribe("owntracks/#")
    wire.lose()
    again = Wire(router)
    connack = again.connect("phone", User("alice", "phone"), clean=False)
    assert connack == b"\x20\x02\x00\x00"
    router.publish(Message("owntracks/alice/tablet", b"x", 1), None, 0.0)
    assert again.received() == b""


def test_a_token_of_one_device_ends_no_session_of_its_user_or_of_another_device() -> None:
    router = new_router()
    owner, tablet, thief = Wire(router), Wire(router), Wire(router)
    owner.connect("alice/phone", User("alice"), clean=False)
    owner.subscribe("owntracks/alice/+")
    tablet.connect("alice/phone", User("alice", "tablet"), clean=False)
    tablet.lose()
    thief.connect("alice/phone", User("alice", "phone"), clean=True)
    assert owner.connection.state == CONNECTED
    thief.lose()
    owner.lose()
    for device in (None, "tablet"):
        again = Wire(router)
        connack = again.connect("alice/phone", User("alice", device), clean=False)
        assert connack[:4] == b"\x20\x02\x01\x00"


def test_a_session_expires_and_leaves_nothing_behind() -> None:
    router = new_router()
    wire = Wire(router)
    wire.connect(version=5, properties=b"\x11\x00\x00\x00\x0a", clean=True)
    wire.subscribe("a/b")
    wire.lose()
    router.advance(9.9)
    assert len(router.sessions) == 1
    router.advance(10.5)
    assert router.sessions == {}
    assert router.offline_sessions() == 0
    assert router.subscriptions.match("a/b") == []
    assert len(router.timers) == 0


def test_of_too_many_sessions_away_the_one_away_longest_goes() -> None:
    router = new_router(Settings(offline_sessions_max=2))
    for name in ("one", "two", "three"):
        wire = Wire(router)
        wire.connect(name, clean=False)
        wire.lose()
    assert {client for _, client in router.sessions} == {"two", "three"}


def test_subscriptions_of_a_session_are_bounded() -> None:
    wire = Wire(new_router(Settings(subscriptions_per_session_max=2)))
    wire.connect(version=5)
    codes = [split_packets(wire.subscribe(f"a/{number}"))[0][1][-1] for number in range(3)]
    assert codes == [1, 1, ReasonCode.QUOTA_EXCEEDED]
    assert split_packets(wire.subscribe("a/0"))[0][1][-1] == 1


@pytest.mark.parametrize("version", [4, 5])
def test_a_filter_of_somebody_else_is_refused(version: int) -> None:
    wire = Wire(new_router())
    wire.connect(identity=User("alice"), version=version)
    refused = 0x80 if version == 4 else ReasonCode.NOT_AUTHORIZED
    assert split_packets(wire.subscribe("owntracks/bob/#"))[0][1][-1] == refused
    assert split_packets(wire.subscribe("owntracks/+/+"))[0][1][-1] == 1
    invalid = 0x80 if version == 4 else ReasonCode.TOPIC_FILTER_INVALID
    assert split_packets(wire.subscribe("owntracks/a#"))[0][1][-1] == invalid


def test_unsubscribe_ends_the_delivery() -> None:
    wire = Wire(new_router())
    wire.connect(version=5)
    wire.subscribe("a/b")
    wire.send(b"\xa2\x08\x00\x02\x00\x00\x03a/b")
    assert wire.received() == b"\xb0\x04\x00\x02\x00\x00"
    wire.send(b"\xa2\x08\x00\x02\x00\x00\x03a/b")
    assert wire.received() == b"\xb0\x04\x00\x02\x00\x11"
    wire.router.publish(Message("a/b", b"hi", 1), None, 0.0)
    assert wire.received() == b""


# --- wills ---------------------------------------------------------------------------------------


def connected_with_will(delay: int = 0, expiry: int = 0) -> Wire:
    wire = Wire(new_router())
    body = (
        b"\x00\x04MQTT\x05\x06\x00\x00"
        + b"\x05\x11"
        + expiry.to_bytes(4, "big")
        + b"\x00\x05phone\x05\x18"
        + delay.to_bytes(4, "big")
        + b"\x00\x01w\x00\x01x"
    )
    (packet,) = wire.send(b"\x10" + bytes([len(body)]) + body)
    wire.connection.accept(packet, User("alice"), 0.0, assigned_client_id="")
    return wire


def test_a_will_is_due_when_the_client_vanishes_and_not_when_it_says_goodbye() -> None:
    wire = connected_with_will()
    wire.lose()
    assert [due.will.topic for due in wire.router.wills] == ["w"]
    polite = connected_with_will()
    polite.send(b"\xe0\x00")
    polite.lose()
    assert polite.router.wills == []
    wanting = connected_with_will()
    wanting.send(b"\xe0\x01\x04")
    wanting.lose()
    assert len(wanting.router.wills) == 1


def test_a_will_is_due_after_a_protocol_error() -> None:
    wire = connected_with_will()
    wire.send(b"\x00\x00")
    wire.lose()
    assert len(wire.router.wills) == 1


def test_a_will_waits_for_its_delay_and_is_cancelled_by_a_return() -> None:
    wire = connected_with_will(delay=5, expiry=60)
    wire.lose()
    assert wire.router.wills == []
    wire.router.advance(5.5)
    assert len(wire.router.wills) == 1
    assert len(wire.router.sessions) == 1

    returning = connected_with_will(delay=5, expiry=60)
    returning.lose()
    Wire(returning.router).connect("phone", User("alice"), clean=False)
    returning.router.advance(30.0)
    assert returning.router.wills == []


def test_a_delayed_will_is_due_at_the_latest_when_the_session_ends() -> None:
    wire = connected_with_will(delay=50, expiry=10)
    wire.lose()
    wire.router.advance(10.5)
    assert len(wire.router.wills) == 1
    assert wire.router.sessions == {}


def test_session_expiry_can_be_changed_at_goodbye_but_not_from_zero() -> None:
    wire = connected_with_will(expiry=60)
    wire.send(b"\xe0\x07\x00\x05\x11\x00\x00\x00\x00")
    wire.lose()
    assert wire.router.sessions == {}
    other = connected_with_will(expiry=0)
    other.send(b"\xe0\x07\x00\x05\x11\x00\x00\x00\x09")
    assert closed_with(other) == ReasonCode.PROTOCOL_ERROR
