"""Rights of clients that are connected, away, or were known to an earlier server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.friends.friend_events import FriendEventFilter
from gateway.friends.friend_filter import FriendFilter
from gateway.mqtt.packets.message import Message
from gateway.mqtt.rights.acl import AccessRules
from gateway.mqtt.rights.delivery_rights import DeliveryRights
from gateway.mqtt.rights.pending_friend_messages import USER_MESSAGES_MAX
from gateway.mqtt.sessions.router import Router
from gateway.mqtt.settings import Settings
from gateway.users.auth import Identity
from gateway.users.database import UserStore
from gateway.users.permissions import Permissions
from gateway.views.places import Places
from tests.gateway.mqtt.in_memory import Wire, split_packets
from tests.gateway.mqtt.journal_worker import Log, Worker


def now_s() -> int:
    """Return a time, in whole seconds, that is after everything so far."""
    return int(time.time()) + 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[UserStore]:
    store = UserStore(tmp_path / "users.db")
    for name in ("ada", "bob"):
        store.add(name)
    store.rights.befriend("ada", "bob")
    yield store
    store.close()


class Server:
    """A worker with real rights."""

    def __init__(
        self,
        store: UserStore,
        log: Log,
        name: str,
        places: Places | None = None,
        *,
        shared: bool = False,
    ) -> None:
        rules = AccessRules()
        self.permissions = Permissions(store)
        places = places or Places(None)
        telling = FriendEventFilter(FriendFilter(places, b"secret"))
        rights = DeliveryRights(rules, self.permissions, telling)
        router = Router(Settings(), rules, 0.0, rights)
        self.worker = Worker(log, name, shared=shared, router=router)
        self.router = self.worker.router
        self.permissions.subscribe(lambda users: self.router.right_changes.apply(users, 0.0))
        places.on_change(lambda: self.router.right_changes.send_untold(0.0))

    def client(self, user: str, name: str = "c") -> tuple[Wire, bytes]:
        """Connect a client whose session is kept; return it, and what it received at once."""
        identity = self.permissions.now(Identity(user))
        assert identity is not None
        wire = Wire(self.router)
        return wire, wire.connect(name, identity, clean=False)

    def publish(
        self,
        lat: float,
        topic: str = "owntracks/ada/phone",
        retain: bool = False,
        **members: Any,
    ) -> None:
        fix = {"_type": "location", "lat": lat, "lon": 9.0, "tst": now_s(), **members}
        self.router.publish(Message(topic, json.dumps(fix).encode(), 1, retain), None, 0.0)

    def enters(self, region: str, device: str = "ada/phone", *, retain: bool = False) -> None:
        members: dict[str, Any] = {"_type": "transition", "event": "enter", "desc": region}
        self.publish(47.0, f"owntracks/{device}/event", retain, lon=9.0, **members)

    def hand_over(self, key: tuple[str, str], other: Server) -> None:
        """Hand over a session of this server to another one."""
        answers: list[bytes | None] = []
        journal = other.worker.journal
        came = journal.next_epoch(key), journal.worker
        self.router.handover.hand_over(key, came, answers.append, 0.0)
        (record,) = answers
        assert record is not None
        journal.claimed(key, record)


def lats(data: bytes) -> list[float]:
    """Return the latitudes of the positions among the packets of a server."""
    return [
        json.loads(body[body.index(b"{") :])["lat"]
        for head, body in split_packets(data)
        if head & 0xF0 == 0x30
    ]


def test_what_waits_for_a_friend_that_is_away_goes_with_the_friendship(store: UserStore) -> None:
    server = Server(store, Log(), "a")
    bob, _ = server.client("bob")
    bob.subscribe("owntracks/+/+")
    bob.lose()
    server.publish(47.0)
    server.publish(1.0, "owntracks/bob/phone")
    store.rights.unfriend("ada", "bob")
    server.permissions.look()
    _, received = server.client("bob")
    assert lats(received) == [1.0]


def test_what_was_sent_to_a_friend_and_not_acknowledged_is_not_sent_again(store: UserStore) -> None:
    server = Server(store, Log(), "a")
    bob, _ = server.client("bob")
    bob.subscribe("owntracks/+/+")
    server.publish(47.0)
    bob.lose()
    store.rights.unfriend("ada", "bob")
    server.permissions.look()
    _, received = server.client("bob")
    assert lats(received) == []


def test_a_server_that_starts_again_knows_friends_of_clients_that_are_away(
    store: UserStore,
) -> None:
    log = Log()
    first = Server(store, log, "a")
    bob, _ = first.client("bob")
    bob.subscribe("owntracks/+/+")
    bob.lose()
    first.publish(47.0)
    first.worker.turn()
    first.worker.stop()
    second = Server(store, log, "b")
    second.publish(48.0)
    _, received = second.client("bob")
    assert lats(received) == [47.0, 48.0]


def test_what_a_server_has_written_for_a_former_friend_is_not_delivered_by_the_next(
    store: UserStore,
) -> None:
    log = Log()
    first = Server(store, log, "a")
    bob, _ = first.client("bob")
    bob.subscribe("owntracks/+/+")
    bob.lose()
    first.publish(47.0)
    first.worker.turn()
    first.worker.stop()
    store.rights.unfriend("ada", "bob")
    second = Server(store, log, "b")
    _, received = second.client("bob")
    assert lats(received) == []


def test_a_filter_that_nothing_was_left_of_matches_again_with_a_new_friendship(
    store: UserStore,
) -> None:
    server = Server(store, Log(), "a")
    bob, _ = server.client("bob")
    bob.subscribe("owntracks/ada/phone")
    store.rights.unfriend("ada", "bob")
    server.permissions.look()
    server.publish(47.0)
    store.rights.befriend("ada", "bob")
    server.permissions.look()
    server.publish(48.0)
    assert lats(bob.received()) == [48.0]


def test_what_is_older_than_the_friendship_is_not_delivered(store: UserStore) -> None:
    server = Server(store, Log(), "a")
    bob, _ = server.client("bob")
    bob.subscribe("owntracks/ada/phone")
    server.publish(47.0, tst=now_s() - 3600)
    server.publish(48.0)
    assert lats(bob.received()) == [48.0]


def test_an_administrators_grant_shows_a_friends_topics_as_they_are(store: UserStore) -> None:
    server = Server(store, Log(), "a")
    bob, _ = server.client("bob")
    bob.subscribe("owntracks/ada/phone")
    server.publish(47.0, SSID="Wi-Fi")
    assert b"Wi-Fi" not in bob.received()
    store.rights.grant("bob", "subscribe", "owntracks/ada/#")
    server.permissions.look()
    server.publish(47.0, SSID="Wi-Fi")
    assert b"Wi-Fi" in bob.received()


def test_sessions_of_the_revoked_end_also_when_the_server_was_not_there(store: UserStore) -> None:
    log = Log()
    first = Server(store, log, "a")
    bob, _ = first.client("bob")
    bob.subscribe("owntracks/+/+")
    bob.lose()
    first.worker.turn()
    first.worker.stop()
    store.revoke("bob")
    second = Server(store, log, "b")
    assert not second.router.sessions


async def test_what_is_retained_of_friends_waits_until_it_is_known_where_they_live(
    store: UserStore, tmp_path: Path
) -> None:
    places = Places(str(tmp_path / "places"))
    server = Server(store, Log(), "a", places)
    clock_s = int(time.time()) - 60
    store.rights.befriend("ada", "bob", since=0)
    for lat, owner in ((47.0, "ada"), (1.0, "bob")):
        server.publish(lat, f"owntracks/{owner}/phone", retain=True, tst=clock_s)
    bob, _ = server.client("bob")
    gone, _ = server.client("bob", "gone")
    assert lats(bob.subscribe("owntracks/+/+")) == [1.0]
    gone.subscribe("owntracks/+/+")
    server.router.unsubscribe(server.router.sessions["bob", "gone"], "owntracks/+/+")
    gone.received()
    await places.refresh()
    # Messages for everybody were delivered before, and are not sent again.
    assert lats(bob.received()) == [47.0]
    assert lats(gone.received()) == []
    await places.refresh()
    assert lats(bob.received()) == []


async def test_what_friends_send_before_it_is_known_where_they_live_is_told_late(
    store: UserStore, tmp_path: Path
) -> None:
    places = Places(str(tmp_path / "places"))
    server = Server(store, Log(), "a", places)
    store.rights.befriend("ada", "bob", since=0)
    bob, _ = server.client("bob")
    assert lats(bob.subscribe("owntracks/+/+")) == []
    for number, lat in enumerate((46.0, 47.0)):
        server.publish(lat, retain=True, tst=int(time.time()) - 60 + number)
    server.publish(1.0, "owntracks/bob/phone", retain=True)
    assert lats(bob.received()) == [1.0]
    await places.refresh()
    # The newest position replaces the earlier ones.
    assert lats(bob.received()) == [47.0]
    await places.refresh()
    assert lats(bob.received()) == []


def regions(data: bytes) -> list[str]:
    """Return the regions of the transitions among the packets of a server."""
    bodies = [body for head, body in split_packets(data) if head & 0xF0 == 0x30]
    return [json.loads(body[body.index(b"{") :])["desc"] for body in bodies]


async def test_transitions_of_friends_wait_until_it_is_known_where_they_live(
    store: UserStore, tmp_path: Path
) -> None:
    places = Places(str(tmp_path / "places"))
    server = Server(store, Log(), "a", places)
    store.rights.befriend("ada", "bob", since=0)

    passes = server.enters
    bob, _ = server.client("bob")
    away, _ = server.client("bob", "away")
    for client in (bob, away):
        client.subscribe("owntracks/+/+/event")
    away.lose()
    passes("school")
    passes("erased", "ada/old")
    passes("shop")
    passes("own", "bob/phone")
    assert regions(bob.received()) == ["own"]
    server.router.forget_device("ada/old")
    late, _ = server.client("bob", "late")
    late.subscribe("owntracks/+/+/event")
    await places.refresh()
    assert regions(bob.received()) == ["school", "shop"]
    # A client that subscribed afterwards has missed nothing.
    assert regions(late.received()) == []
    _, kept = server.client("bob", "away")
    assert regions(kept) == ["own", "school", "shop"]
    passes("office")
    await places.refresh()
    assert regions(bob.received()) == ["office"]


@pytest.mark.parametrize("on_the_way", [0, 1])
@pytest.mark.parametrize("is_known_there", [False, True])
async def test_what_friends_cannot_be_told_yet_goes_with_a_client_to_another_worker(
    store: UserStore, tmp_path: Path, is_known_there: bool, on_the_way: int
) -> None:
    store.rights.befriend("ada", "bob", since=0)
    log = Log()
    places = [Places(str(tmp_path / "places")) for _ in range(2 + on_the_way)]
    servers = [
        Server(store, log, name, each, shared=True)
        for name, each in zip("abc", places, strict=False)
    ]
    first, last = servers[0], servers[-1]
    if is_known_there:
        await places[-1].refresh()
    bob, _ = first.client("bob")
    bob.subscribe("owntracks/+/+/event")
    first.enters("retained", "ada/bike", retain=True)
    first.worker.turn()
    bob.lose()
    for region, device in (("school", "ada/phone"), ("home", "eve/phone"), ("shop", "ada/phone")):
        first.enters(region, device)
    # The session passes through all servers; between them its client is never fully connected.
    for server, other in pairwise(servers):
        server.hand_over(("bob", "c"), other)
    bob, received = last.client("bob")
    if not is_known_there:
        assert not regions(received)
        await places[-1].refresh()
        received = bob.received()
    assert sorted(regions(received)) == ["retained", "school", "shop"]
    # Each message is sent once, over all servers.
    for each in places:
        await each.refresh()
    assert not bob.received()
    assert not any(server.router.sessions for server in servers[:-1])


async def test_what_friends_cannot_be_told_yet_outlives_an_orderly_stop(
    store: UserStore, tmp_path: Path
) -> None:
    store.rights.befriend("ada", "bob", since=0)
    log = Log()
    first = Server(store, log, "a", Places(str(tmp_path / "places")))
    bob, _ = first.client("bob")
    bob.subscribe("owntracks/+/+/event")
    bob.lose()
    for region in ("school", "shop"):
        first.enters(region)
    first.worker.turn()
    first.worker.stop()
    places = Places(str(tmp_path / "places"))
    second = Server(store, log, "b", places)
    second.enters("office")
    await places.refresh()
    _, received = second.client("bob")
    assert regions(received) == ["school", "shop", "office"]


async def test_of_transitions_that_wait_each_user_has_a_share(
    store: UserStore, tmp_path: Path
) -> None:
    store.add("eve")
    for friend in ("ada", "eve"):
        store.rights.befriend(friend, "bob", since=0)
    places = Places(str(tmp_path / "places"))
    server = Server(store, Log(), "a", places)
    bob, _ = server.client("bob")
    bob.subscribe("owntracks/+/+/event")
    for number in range(1_000):
        user = "ada" if number == 0 else "eve"
        members: dict[str, Any] = {"_type": "transition", "desc": f"{user} {number}"}
        server.publish(47.0, f"owntracks/{user}/phone/event", **members)
    await places.refresh()
    newest = range(1_000 - USER_MESSAGES_MAX, 1_000)
    assert regions(bob.received()) == ["ada 0", *(f"eve {number}" for number in newest)]


async def test_what_says_nothing_of_places_does_not_wait_until_they_are_known(
    store: UserStore, tmp_path: Path
) -> None:
    server = Server(store, Log(), "a", Places(str(tmp_path / "places")))
    bob, _ = server.client("bob")
    bob.subscribe("owntracks/+/+")
    for kind in ("lwt", "encrypted"):
        server.publish(47.0, _type=kind, data="sealed by its owner")
    packets = split_packets(bob.received())
    kinds = [json.loads(body[body.index(b"{") :])["_type"] for head, body in packets]
    assert kinds == ["lwt", "encrypted"]


class OneHome:
    """Everybody lives at one place, from the beginning unless a test says otherwise."""

    def __init__(self) -> None:
        self.looked_up = True
        self.places = [(47.0, 9.0)]

    def homes(self, user: str) -> list[tuple[float, float]]:
        return self.places


class Household:
    """What two clients of a friend of somebody who is at home are told."""

    def __init__(self, store: UserStore) -> None:
        server = Server(store, Log(), "a")
        for name in ("first", "second"):
            server.client("bob", name)
        self.first, self.second = server.router.sessions.values()
        self.homes = OneHome()
        self.filter = FriendFilter(self.homes, b"secret")
        telling = FriendEventFilter(self.filter)
        self.rights = DeliveryRights(AccessRules(), server.permissions, telling)

    def message(self, device: str = "phone", size: int = 0) -> Message:
        fix = {"_type": "location", "lat": 47.0, "lon": 9.0, "tst": now_s(), "own": "x" * size}
        return Message(f"owntracks/ada/{device}", json.dumps(fix).encode(), 1)

    def tell(self, count: int, size: int = 0) -> None:
        """Tell the first client of the arrival of so many devices."""
        for number in range(count):
            assert self.rights.told(self.message(f"other-{number}", size), self.first) is not None


@pytest.fixture
def household(store: UserStore) -> Household:
    return Household(store)


def test_all_clients_of_a_friend_learn_of_an_arrival_whatever_comes_between(
    household: Household,
) -> None:
    """The second one has its turn when the next message has been told to the first."""
    rights, first, second = household.rights, household.first, household.second
    household.tell(15, size=100_000)  # however much was told before
    arrival, later = household.message(), household.message()
    told = rights.told(arrival, first)
    assert told is not None
    assert rights.told(later, first) is None  # within the quarter of an hour
    assert rights.told(arrival, second) is told
    assert rights.told(later, second) is None


@pytest.mark.parametrize(("count", "size"), [(1_000, 0), (3, 500_000)])
def test_what_friends_are_told_of_many_messages_is_not_kept(
    household: Household, count: int, size: int
) -> None:
    rights, arrival = household.rights, household.message()
    assert rights.told(arrival, household.first) is not None
    household.tell(count, size)
    # So it is decided anew, within the quarter of an hour.
    assert rights.told(arrival, household.second) is None


def test_a_message_from_before_homes_were_known_is_told_as_soon_as_they_are(
    household: Household,
) -> None:
    household.homes.looked_up = False
    arrival = household.message()
    assert household.rights.told(arrival, household.first) is None
    household.homes.looked_up = True
    assert household.rights.told(arrival, household.second) is not None


def test_a_message_from_before_a_home_was_known_is_not_told_as_it_was(
    household: Household,
) -> None:
    rights, arrival = household.rights, household.message()
    household.homes.places = []
    told = rights.told(arrival, household.first)
    assert told is not None
    assert json.loads(told.payload)["lat"] == 47.0
    household.homes.places = [(47.0, 9.0)]
    household.filter.homes_changed()
    assert not list(rights.take_withheld())
    told = rights.told(arrival, household.second)
    assert told is not None
    assert json.loads(told.payload)["lat"] != 47.0


def test_a_message_that_friends_cannot_be_told_of_is_told_to_its_owner_only(
    store: UserStore, caplog: pytest.LogCaptureFixture
) -> None:
    class Fails(Places):
        def homes(self, user: str) -> list[tuple[float, float]]:
            if not is_known:
                raise KeyError("nobody has thought of this")
            return super().homes(user)

    is_known = False
    server = Server(store, Log(), "a", Fails(None))
    (ada, _), (bob, _) = server.client("ada"), server.client("bob")
    for wire in (ada, bob):
        wire.subscribe("owntracks/#")
    server.publish(47.0)
    assert lats(ada.received()) == [47.0]
    assert not bob.received()
    is_known = True
    server.publish(48.0)
    assert lats(ada.received()) == lats(bob.received()) == [48.0]
    (line,) = caplog.records
    assert "a message of 'owntracks/ada/phone' is left out" in line.getMessage()


def test_a_friend_gets_messages_by_the_terms_of_the_friendship(store: UserStore) -> None:
    store.add("cyd")
    store.rights.befriend("ada", "bob", since=0, precision="town")
    store.rights.befriend("ada", "cyd", since=0)
    server = Server(store, Log(), "a")
    bob, _ = server.client("bob")
    cyd, _ = server.client("cyd")
    for client in (bob, cyd):
        client.subscribe("owntracks/+/+")
    clock_s = int(time.time()) - 60
    server.publish(47.0, retain=True, vel=30, batt=50, tst=clock_s)
    server.publish(47.00001, retain=True, tst=clock_s)
    [square] = lats(bob.received())
    assert lats(cyd.received()) == [47.0, 47.00001]
    assert 0 < abs(square - 47.0) < 0.03
    late, _ = server.client("bob", "late")
    received = late.subscribe("owntracks/+/+")
    assert lats(received) == [square]
    assert b"vel" not in received and b"batt" not in received
    server.enters("school")
    for kind in ("lwt", "encrypted"):
        server.publish(47.0, _type=kind, data="sealed by its owner")
    assert not bob.received()


@pytest.mark.parametrize("restarts", [False, True])
def test_what_waits_in_a_form_that_tells_more_than_may_be_told_now_is_not_delivered(
    store: UserStore, restarts: bool
) -> None:
    log = Log()
    server = Server(store, log, "a")
    bob, _ = server.client("bob")
    bob.subscribe("owntracks/+/+")
    bob.lose()
    server.publish(47.0)
    server.publish(1.0, "owntracks/bob/phone")
    if restarts:
        server.worker.turn()
        server.worker.stop()
    store.rights.befriend("ada", "bob", precision="town")
    server.permissions.look()
    if restarts:
        server = Server(store, log, "b")
    _, received = server.client("bob")
    assert lats(received) == [1.0]


def test_what_waits_goes_with_a_friendship_that_has_ended_by_itself(store: UserStore) -> None:
    server = Server(store, Log(), "a")
    until = int(time.time() * 1000) + 1_500
    store.rights.befriend("ada", "bob", until=until)
    server.permissions.look()
    bob, _ = server.client("bob")
    bob.subscribe("owntracks/+/+")
    server.publish(47.0)
    assert lats(bob.received()) == [47.0]
    bob.lose()
    server.publish(48.0)
    while time.time() * 1000 <= until:
        time.sleep(0.02)
    # Even before anybody has looked nothing more is told.
    server.publish(49.0)
    server.permissions.look()
    _, received = server.client("bob")
    assert lats(received) == []
