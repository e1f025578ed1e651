from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import pytest
from msgspec.structs import replace

from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.packets import PacketType
from gateway.mqtt.packets.topics import Subscription
from gateway.mqtt.sessions.push import MqttAddressChannel, own_card
from gateway.mqtt.sessions.router import Router
from gateway.mqtt.sessions.session import Session
from gateway.observability.push_ledger import CARD, MQTT, PushLedger
from gateway.users.cards import card, location
from tests.gateway.mqtt.in_memory import (
    Addresses,
    Locations,
    User,
    Wire,
    address,
    changed,
    new_router,
    split_packets,
)
from waylog.messages import Address, Fix, encode

FIX = Fix(
    id="1",
    device="alice/phone",
    user="alice",
    lat=50.73,
    lon=7.1,
    time=1_761_994_805_123,
    received=1_761_994_806_000,
    speed=10.0,
    charging=True,
    battery=72.0,
    source="owntracks",
    trigger="p",
    attributes={"tid": "mk"},
)


class Channel:
    def __init__(self, addresses: Addresses | None = None) -> None:
        self.router: Router = new_router()
        self.addresses = addresses or Addresses()
        self.locations = Locations()
        self.woken = 0
        self.channel = MqttAddressChannel(
            self.router, self.addresses, self.locations, lambda: 0.0, self._wake
        )
        self.router.sources.append(self.channel)

    def _wake(self) -> None:
        self.woken += 1

    def client(self, *filters: str, identity: User | None = None) -> tuple[Wire, list[Message]]:
        """Connect a client; return it, and the messages that it receives at once."""
        wire = Wire(self.router)
        wire.connect(identity=identity or User("alice"))
        received = []
        for topic_filter in filters:
            received += messages(wire.subscribe(topic_filter))
        return wire, received


def messages(data: bytes) -> list[Message]:
    """Return the PUBLISH packets (QoS 1) in what a client has received."""
    found = []
    for first, body in split_packets(data):
        if first >> 4 == PacketType.PUBLISH:
            size = int.from_bytes(body[:2], "big")
            topic = body[2 : 2 + size].decode()
            found.append(Message(topic, body[4 + size :], first >> 1 & 3, bool(first & 1)))
    return found


def test_a_new_address_goes_to_its_subscribers_as_the_json_of_the_topic() -> None:
    world = Channel()
    wire, _ = world.client("devices/alice/phone/address")
    changed(world.channel, address())
    changed(world.channel, address("alice/tablet"))
    changed(world.channel, address("bob/phone"))
    (message,) = messages(wire.received())
    assert message.topic == "devices/alice/phone/address"
    assert message.payload == encode(address())
    assert not message.retain
    assert world.woken == 3


def test_what_goes_to_a_client_of_the_owner_is_counted() -> None:
    world = Channel()
    ledger = PushLedger()
    world.channel.count_in(ledger)
    world.client("devices/alice/phone/address", "owntracks/+/+/info")
    world.client("devices/+/+/address", identity=User("root", admin=True))
    for device in ("alice/phone", "alice/tablet", "alice2/phone"):
        changed(world.channel, address(device))
    changed(world.channel, address("alice/phone"))
    counts = {
        device: [each[:2] for each in ledger.untold(device)]
        for device in ("alice/phone", "alice/tablet", "alice2/phone")
    }
    # An administrator's client, and a card of the same street, are none.
    assert counts == {
        "alice/phone": [(MQTT, 2), (CARD, 1)],
        "alice/tablet": [(CARD, 1)],
        "alice2/phone": [],
    }


def test_a_card_is_sent_when_the_street_changed_and_only_then() -> None:
    world = Channel()
    wire, _ = world.client("owntracks/+/+/info")
    changed(world.channel, address())
    changed(world.channel, address())
    changed(world.channel, address(name="Kaiserplatz 6, Bonn"))
    moved = address(name="Marktplatz 1, Bonn")
    moved.address["road"] = "Marktplatz"
    changed(world.channel, moved)
    changed(world.channel, address("bob/phone"))
    names = [msgspec.json.decode(item.payload)["name"] for item in messages(wire.received())]
    assert names == ["phone - Kaiserplatz 4, Bonn", "phone - Marktplatz 1, Bonn"]


def test_who_subscribes_later_gets_address_card_and_position_as_retained() -> None:
    world = Channel()
    world.addresses.by_device["alice/phone"] = address()
    world.addresses.by_device["bob/phone"] = address("bob/phone")
    world.locations.by_device["alice/phone"] = FIX
    _, received = world.client("devices/alice/phone/address", "owntracks/+/+", "owntracks/+/+/info")
    assert [item.topic for item in received] == [
        "devices/alice/phone/address",
        "owntracks/alice/phone",
        "owntracks/alice/phone/info",
    ]
    assert all(item.retain for item in received)
    assert len(world.router.retained) == 0


def test_a_wildcard_subscriber_gets_every_device_it_may_read() -> None:
    world = Channel()
    for device in ("alice/phone", "alice/tablet", "bob/phone"):
        world.addresses.by_device[device] = address(device)
    _, own = world.client("devices/+/+/address")
    assert {item.topic for item in own} == {
        "devices/alice/phone/address",
        "devices/alice/tablet/address",
    }
    _, everything = world.client("#", identity=User("root", admin=True))
    assert len(everything) == 6


PHONE = "owntracks/alice/phone"
OWN = b'{"_type":"location","lat":50.73,"lon":7.1,"tst":1761994805,"own":1}'
NO_POSITIONS = (
    b'{"_type":"transition","tst":1761994900}',
    b'{"_type":"encrypted"}',
    b'{"_type":"\xff","data":"encrypted"}',
    b"[" * 100_000,
    b"junk",
)


def test_the_newest_position_wins_as_its_device_published_it() -> None:
    world = Channel()
    world.locations.by_device["alice/phone"] = replace(FIX, time=FIX.time - 123)
    world.router.publish(Message(PHONE, OWN, 1, True), None, 0.0)
    for topic_filter in (PHONE, "owntracks/+/+", "owntracks/#"):
        _, received = world.client(topic_filter)
        assert [item.payload for item in received] == [OWN]


@pytest.mark.parametrize("own", [*NO_POSITIONS, OWN.replace(b"1761994805", b"1761994804")])
def test_what_a_client_has_retained_hides_no_newer_position(own: bytes) -> None:
    world = Channel()
    world.router.publish(Message(PHONE, own, 1, True), None, 0.0)
    _, received = world.client(PHONE)
    assert [item.payload for item in received] == [own]
    world.locations.by_device["alice/phone"] = FIX
    for topic_filter in (PHONE, "owntracks/+/+", "owntracks/#"):
        _, received = world.client(topic_filter)
        assert [msgspec.json.decode(item.payload)["tst"] for item in received] == [1761994805]
        assert received[0].payload != own


def test_a_position_ahead_of_the_clock_hides_none_either() -> None:
    world = Channel()
    world.locations.by_device["alice/phone"] = FIX
    # Numbers from 2^32 on would be milliseconds.
    ahead = OWN.replace(b"1761994805", b"4261994805")
    world.router.publish(Message(PHONE, ahead, 1, True), None, 0.0)
    _, received = world.client(PHONE)
    assert [msgspec.json.decode(item.payload)["tst"] for item in received] == [1761994805]


class Asked:
    """Keeps the questions of a worker without views; the test answers them."""

    def __init__(self) -> None:
        self.asked: list[tuple[Subscription, tuple[str, ...]]] = []

    def ask(
        self, subscription: Subscription, topic_filters: Iterable[str], *, with_stored: bool
    ) -> None:
        assert with_stored
        self.asked.append((subscription, tuple(topic_filters)))

    def gone(self, session: Session) -> None: ...
    def back(self, session: Session) -> None: ...
    def forget(self, subscription: Subscription) -> None: ...


@pytest.mark.parametrize("own", [*NO_POSITIONS, OWN])
def test_a_worker_without_views_asks_before_it_delivers_in_the_place_of_a_position(
    own: bytes,
) -> None:
    world = Channel()
    world.locations.by_device["alice/phone"] = FIX
    (derived,) = [each for each in world.channel.retained(PHONE) if each is not None]
    for answer, expected in (
        ([derived], [OWN if own == OWN else derived.payload]),
        ([], [own]),
    ):
        router = new_router()
        questions = Asked()
        router.retained_delivery.questions = questions
        router.publish(Message(PHONE, own, 1, True), None, 0.0)
        wire = Wire(router)
        wire.connect(identity=User("alice"))
        assert not messages(wire.subscribe("owntracks/+/+"))
        ((subscription, (topic_filter,)),) = questions.asked
        router.retained_delivery.came(subscription, topic_filter, answer, 0.0)
        assert [each.payload for each in messages(wire.received())] == expected


def asking(topic: str, topic_filter: str) -> tuple[Router, Wire, Subscription]:
    """Return a worker without views that has a retained message, and a subscriber's question."""
    router = new_router()
    questions = Asked()
    router.retained_delivery.questions = questions
    router.publish(Message(topic, OWN, 1, True), None, 0.0)
    wire = Wire(router)
    wire.connect(identity=User("alice"))
    wire.subscribe(topic_filter)
    return router, wire, questions.asked[0][0]


def test_an_answer_to_who_has_unsubscribed_meanwhile_is_dropped() -> None:
    router, wire, subscription = asking(PHONE, "owntracks/+/+")
    router.unsubscribe(subscription.session, "owntracks/+/+")
    router.retained_delivery.came(subscription, "owntracks/+/+", [], 0.0)
    assert not messages(wire.received())


def test_what_is_stored_has_not_waited_for_the_question_of_a_session_that_goes_on() -> None:
    router, wire, subscription = asking(PHONE, PHONE)
    router.retained_delivery.came(subscription, PHONE, [], 0.0, with_stored=False)
    assert not messages(wire.received())
    router.retained_delivery.came(subscription, PHONE, [], 0.0)
    assert [each.payload for each in messages(wire.received())] == [OWN]


@pytest.mark.parametrize("topic", [f"{PHONE}/event", f"{PHONE}/waypoints", "owntracks/alice"])
def test_what_no_view_makes_is_delivered_without_asking(topic: str) -> None:
    router = new_router()
    router.retained_delivery.questions = Asked()
    router.publish(Message(topic, OWN, 1, True), None, 0.0)
    wire = Wire(router)
    wire.connect(identity=User("alice", admin=True))
    assert [each.payload for each in messages(wire.subscribe(topic))] == [OWN]


def test_a_session_that_goes_on_gets_the_positions_that_came_without_it() -> None:
    world = Channel()
    world.router.publish(Message(PHONE, OWN, 1, True), None, 0.0)
    wire, _ = world.client(PHONE)
    subscription = world.router.sessions["alice", "phone"].subscriptions[PHONE]
    for time, expected in ((FIX.time - 60_000, []), (FIX.time + 60_000, [1761994865])):
        world.locations.by_device["alice/phone"] = replace(FIX, time=time)
        world.router.retained_delivery.add_derived(subscription, (PHONE,))
        subscription.session.pump(0.0)
        told = messages(wire.received())
        assert [msgspec.json.decode(each.payload)["tst"] for each in told] == expected


def test_the_name_and_picture_of_an_own_card_are_kept() -> None:
    own = b'{"_type":"card","name":"Mika","face":"aGk=","tid":"MK"}'
    assert card(address(), FIX, own_card(own)) == {
        "_type": "card",
        "tid": "MK",
        "name": "Mika - Kaiserplatz 4, Bonn",
        "face": "aGk=",
    }


@pytest.mark.parametrize(
    "own", [None, b"no json", b"[]", b'{"name":7}', b'{"name":"\xff"}', b"[" * 100_000]
)
def test_a_card_can_always_be_made(own: bytes | None) -> None:
    members = card(address(), None, own_card(own))
    assert members == {"_type": "card", "tid": "ne", "name": "phone - Kaiserplatz 4, Bonn"}


def test_a_card_that_is_no_text_cuts_off_nobody() -> None:
    world = Channel()
    for device in ("alice/phone", "alice/tablet"):
        world.addresses.by_device[device] = address(device)
    info = "owntracks/alice/phone/info"
    odd = b'{"_type":"card","name":"\xff"}'
    world.router.publish(Message(info, odd, 1, True), None, 0.0)
    for topic_filter in (info, "owntracks/#"):
        _, received = world.client(topic_filter)
        assert odd in [each.payload for each in received]
    assert [each.topic for each in received] == [info, "owntracks/alice/tablet/info"]


class OneFails(Addresses):
    """A view that cannot be asked about one device."""

    def latest(self, device: str) -> Address | None:
        if device == "alice/phone":
            raise KeyError("nobody has thought of this")
        return super().latest(device)


def test_a_message_that_cannot_be_made_is_left_out_and_the_others_are_delivered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = Channel(OneFails())
    for device in ("alice/bike", "alice/phone", "alice/tablet"):
        world.addresses.by_device[device] = address(device)
    note = "devices/alice/phone/note"
    world.router.publish(Message(note, b"stored", 1, True), None, 0.0)
    _, received = world.client("devices/alice/#")
    assert [each.topic for each in received] == [
        note,
        "devices/alice/bike/address",
        "devices/alice/tablet/address",
    ]
    (line,) = caplog.records
    assert line.getMessage() == (
        "a message of 'devices/alice/phone/address' is left out, the others are delivered"
    )


def test_a_source_that_fails_leaves_what_is_stored_and_what_others_make(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Fails:
        def retained(self, topic_filter: str) -> Iterator[Message | None]:
            yield None
            raise KeyError("nobody has thought of this")

    world = Channel()
    world.router.sources.insert(0, Fails())
    world.addresses.by_device["alice/tablet"] = address("alice/tablet")
    world.router.publish(Message(PHONE, OWN, 1, True), None, 0.0)
    _, received = world.client("owntracks/#")
    assert [each.topic for each in received] == [PHONE, "owntracks/alice/tablet/info"]
    assert "is left out" in caplog.text


def test_a_fix_of_any_app_is_an_owntracks_location() -> None:
    assert location(FIX) == {
        "_type": "location",
        "tid": "mk",
        "lat": 50.73,
        "lon": 7.1,
        "tst": 1761994805,
        "vel": 36,
        "batt": 72,
        "bs": 2,
        "t": "p",
    }


def test_no_last_position_is_retained_that_is_older_than_the_address() -> None:
    world = Channel()
    world.locations.by_device["alice/phone"] = FIX
    world.addresses.by_device["alice/phone"] = replace(address(), time=FIX.time + 1)
    _, received = world.client("owntracks/#")
    assert [each.topic for each in received] == ["owntracks/alice/phone/info"]
