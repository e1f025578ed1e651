"""Several workers as one server: messages, shared subscriptions, sessions and repeats cross."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.fixes.known_fixes import fix_key
from gateway.friends.friend_events import FriendEventFilter
from gateway.friends.friend_filter import FriendFilter
from gateway.mqtt.journal.journal import Journal
from gateway.mqtt.listening.listener import MqttServer, start_mqtt
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.topics import EVERYTHING, ElsewhereInterest, matches
from gateway.mqtt.workers.interest import InterestTable, OwnInterest, interest_of
from gateway.mqtt.workers.membership import DeduplicatingSubmitter, LocalChannel, about_fixes, join
from gateway.mqtt.workers.worker_hub import WorkerHub
from gateway.mqtt.workers.worker_peers import WorkerPeers
from gateway.users.auth import Identity
from gateway.users.database import UserStore
from gateway.users.permissions import Permissions
from gateway.views.places import Places
from tests.gateway.mqtt.in_memory import (
    Addresses,
    Locations,
    PahoClient,
    Push,
    User,
    Users,
    Wire,
    address,
    changed,
    eventually,
    new_router,
)
from tests.gateway.records import MemoryLog, MemoryTelemetry, StoredRecord, fix
from waylog.config import Endpoint
from waylog.observability.telemetry import now_ms


@dataclass
class Worker:
    """One of several workers."""

    server: MqttServer
    channel: LocalChannel
    submitter: DeduplicatingSubmitter
    log: MemoryLog
    journal: Journal

    @property
    def port(self) -> int:
        return self.server.endpoint.port


class Friends(Users):
    """Users with real rights, whose homes are not known yet."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.store = UserStore(folder / "users.db")
        for name in ("ada", "bob"):
            self.store.add(name)
        self.store.rights.befriend("ada", "bob", since=0)
        self.permissions = Permissions(self.store)
        self.places = Places(str(folder / "places"))

    async def authenticate(self, user: str, password: str, address: str = "") -> Any:
        return self.permissions.now(Identity(user))


@contextlib.asynccontextmanager
async def workers(
    count: int,
    known: set[tuple[str, str]] | None = None,
    log_lag_s: float = 0.0,
    friends: Friends | None = None,
) -> AsyncIterator[list[Any]]:
    """Run `count` workers; the first has the worker hub. Each reads late what others write."""
    loop = asyncio.get_running_loop()
    worker_hub = WorkerHub(
        lambda _, callback: loop.call_soon(callback), lambda *named: named in (known or set())
    )
    journals: list[Journal] = []

    def append(key: bytes, value: bytes | None) -> None:
        # Like the log: all workers read everything, including the one that has written it.
        for journal in journals:
            loop.call_later(log_lag_s, journal.on_records, [StoredRecord(key, value)])

    running = []
    for number in range(count):
        channel = LocalChannel(worker_hub)
        log = MemoryLog()
        submitter = DeduplicatingSubmitter(
            log, MemoryTelemetry(), loop, is_stored=about_fixes(channel, "known")
        )
        journal = Journal(
            *(f"worker-{number}", append, now_ms, loop.time, loop.call_soon), shared=True
        )
        journals.append(journal)
        server = await start_mqtt(
            Endpoint("127.0.0.1", 0),
            submitter=submitter,
            authenticator=Users() if friends is None else friends,
            permissions=None if friends is None else friends.permissions,
            telling=None
            if friends is None
            else FriendEventFilter(FriendFilter(friends.places, b"secret")),
            address_view=Addresses(),
            location_view=Locations(),
            pusher=Push(),
            journal=journal,
        )
        server.channel.chooses_members = not number
        neighbours = join(server, journal, channel, submitter)
        channel.on_frame = neighbours.on_frame
        neighbours.opened()
        running.append(Worker(server, channel, submitter, log, journal))
    try:
        yield running
    finally:
        for worker in running:
            await worker.server.close()


async def connected(worker: Worker, name: str, user: str = "ada", **options: Any) -> PahoClient:
    client = PahoClient(worker.port, name, **options)
    client.client.reconnect_delay_set(60, 60)
    await client.connect(user)
    return client


async def test_a_message_reaches_subscribers_of_every_worker_once() -> None:
    async with workers(3) as running:
        clients = [await connected(worker, f"c{n}") for n, worker in enumerate(running)]
        for client in clients:
            await client.subscribe("devices/ada/+/note")
            await client.subscribe("devices/ada/phone/note")
        await eventually(lambda: all(len(each.server.router.elsewhere) for each in running))
        for number, client in enumerate(clients):
            await client.publish("devices/ada/phone/note", str(number))
        for client in clients:
            payloads = [(await client.message()).payload for _ in clients]
            assert sorted(payloads) == [b"0", b"1", b"2"]
            assert client.messages.empty()
            await client.close()


async def test_qos_and_properties_cross_unchanged() -> None:
    async with workers(2) as running:
        reader = await connected(running[1], "reader", version=5)
        await reader.subscribe("devices/ada/phone/note", 2)
        sender = await connected(running[0], "sender", version=5)
        await eventually(lambda: len(running[0].server.router.elsewhere) == 1)
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.UserProperty = ("a", "b")
        properties.CorrelationData = b"\xff\0"
        properties.MessageExpiryInterval = 60
        await sender.publish("devices/ada/phone/note", b"\xff", 2, properties=properties)
        message = await reader.message()
        assert (message.payload, message.qos) == (b"\xff", 2)
        assert message.properties is not None
        crossed: Any = message.properties
        assert crossed.UserProperty == [("a", "b")]
        assert crossed.CorrelationData == b"\xff\0"
        assert 58 <= crossed.MessageExpiryInterval <= 60
        await reader.close()
        await sender.close()


async def test_what_nobody_elsewhere_wants_does_not_leave_the_worker() -> None:
    async with workers(2) as running:
        reader = await connected(running[1], "reader")
        await reader.subscribe("devices/ada/phone/note")
        sender = await connected(running[0], "sender", "bob")
        await sender.subscribe("devices/bob/phone/address")
        await eventually(lambda: len(running[0].server.router.elsewhere) == 1)
        sent: list[Any] = []
        running[0].server.router.pass_on = sent.append
        await sender.publish("devices/bob/phone/note", "mine")
        assert not sent
        assert len(running[1].server.router.elsewhere) == 0
        await reader.close()
        await eventually(lambda: len(running[0].server.router.elsewhere) == 0)
        await sender.close()


async def test_each_message_goes_to_one_member_of_a_group_over_all_workers() -> None:
    async with workers(3) as running:
        members = [await connected(running[n % 3], f"m{n}") for n in range(3)]
        for member in members:
            await member.subscribe("$share/team/devices/ada/+/job")
        tree = running[0].server.router.subscriptions
        await eventually(lambda: len(tree.match("devices/ada/x/job")) == 1)
        sender = await connected(running[0], "sender")
        await eventually(
            lambda: len({id(tree.match("devices/ada/x/job")[0]) for _ in range(9)}) == 3
        )
        for number in range(30):
            await sender.publish("devices/ada/x/job", str(number))
        await eventually(lambda: sum(member.messages.qsize() for member in members) == 30)
        counts = [member.messages.qsize() for member in members]
        assert counts == [10, 10, 10]
        # The member that stays gets all messages.
        for member in members[:2]:
            await member.close()
        await eventually(
            lambda: all(
                each.session.connection is not None for each in tree.match("devices/ada/x/job")
            )
        )
        await eventually(lambda: len({id(tree.match("devices/ada/x/job")[0]) for _ in "123"}) == 1)
        for number in range(5):
            await sender.publish("devices/ada/x/job", str(number))
        await eventually(lambda: members[2].messages.qsize() == 15)
        await members[2].close()
        await sender.close()


async def test_an_address_goes_to_one_member_of_a_group() -> None:
    async with workers(2) as running:
        members = [await connected(worker, f"m{n}") for n, worker in enumerate(running)]
        for member in members:
            await member.subscribe("$share/team/devices/ada/+/address")
        tree = running[0].server.router.subscriptions
        await eventually(
            lambda: len({id(tree.match("devices/ada/x/address")[0]) for _ in "1234"}) == 2
        )
        for number in range(10):
            # The first worker gets all addresses, the others those that are watched there.
            for worker in running:
                changed(worker.server.channel, address("ada/x", f"{number}"))
        await eventually(lambda: sum(member.messages.qsize() for member in members) >= 10)
        await asyncio.sleep(0.05)
        assert [member.messages.qsize() for member in members] == [5, 5]
        for member in members:
            await member.close()


async def test_what_waits_for_a_client_follows_it_to_another_worker() -> None:
    async with workers(2) as running:
        phone = await connected(running[0], "phone", clean_session=False)
        await phone.subscribe("devices/ada/phone/note")
        await phone.close()
        sender = await connected(running[1], "sender")
        await eventually(lambda: len(running[1].server.router.elsewhere) == 1)
        for number in range(3):
            await sender.publish("devices/ada/phone/note", str(number))
        waiting = running[0].server.router.sessions[("ada", "phone")]
        await eventually(lambda: waiting.queued() == 3)
        await eventually(lambda: running[1].journal.owner_of(("ada", "phone")) == "worker-0")

        phone = PahoClient(running[1].port, "phone", clean_session=False)
        assert (await phone.connect("ada"))[1] is True
        assert [(await phone.message()).payload for _ in range(3)] == [b"0", b"1", b"2"]
        assert ("ada", "phone") not in running[0].server.router.sessions
        await phone.close()
        await sender.close()


async def test_what_friends_cannot_be_told_yet_follows_a_client_to_another_worker(
    tmp_path: Path,
) -> None:
    friends = Friends(tmp_path)
    loop = asyncio.get_running_loop()

    def publish(topic: str, members: dict[str, Any]) -> None:
        payload = json.dumps(members | {"tst": int(time.time())}).encode()
        running[0].server.router.publish(Message(topic, payload, 1), None, loop.time())

    async with workers(3, friends=friends) as running:
        bob = await connected(running[1], "phone", "bob", clean_session=False)
        await bob.subscribe("owntracks/ada/#")
        await eventually(lambda: len(running[0].server.router.elsewhere) == 1)
        regions = [f"region {number}" for number in range(3)]
        for region in regions:
            event = {"_type": "transition", "event": "enter", "desc": region}
            publish("owntracks/ada/phone/event", event | {"lat": 47.0, "lon": 9.0})
        publish("owntracks/ada/phone", {"_type": "lwt"})
        # It contains no place, and is delivered after the others were published.
        assert b"lwt" in (await bob.message()).payload
        await bob.close()
        bob = await connected(running[2], "phone", "bob", clean_session=False)
        for worker in running:
            friends.places.on_change(worker.server.homes_changed)
        await friends.places.refresh()
        told: list[str] = []
        while len(told) < len(regions):
            members = json.loads((await bob.message()).payload)
            # The first connection has left it unacknowledged, so it comes again.
            if members["_type"] != "lwt":
                told.append(members["desc"])
        assert told == regions
        assert bob.messages.empty()
        await bob.close()
    friends.store.close()


async def test_a_will_is_published_when_another_worker_takes_over() -> None:
    async with workers(2) as running:
        reader = await connected(running[0], "reader")
        await reader.subscribe("devices/ada/phone/gone")
        old = PahoClient(running[0].port, "phone")
        old.client.reconnect_delay_set(60, 60)
        old.client.will_set("devices/ada/phone/gone", "gone", 1)
        await old.connect("ada")
        new = await connected(running[1], "phone")
        assert (await reader.message()).payload == b"gone"
        for client in (reader, old, new):
            await client.close()


async def test_a_client_has_one_connection_of_which_the_log_does_not_hear() -> None:
    async with workers(3) as running:
        clients = []
        sessions = [each.server.router.sessions for each in running]
        for turn in range(6):
            client = PahoClient(running[turn % 3].port, "phone")
            client.client.reconnect_delay_set(60, 60)
            await client.connect("ada")
            clients.append(client)
            await eventually(lambda: [len(each) for each in sessions].count(0) == 2)
            assert len(sessions[turn % 3]) == 1
        assert not any(len(each.journal) for each in running)
        for client in clients:
            await client.close()


async def test_a_clean_session_ends_one_of_which_the_log_tells_later() -> None:
    async with workers(2, log_lag_s=1.0) as running:
        kept = await connected(running[0], "phone", clean_session=False)
        await kept.subscribe("devices/ada/phone/note")
        await kept.publish("devices/ada/phone/note", "after that in the log", retain=True)
        clean = await connected(running[1], "phone")
        retained = running[1].server.router.retained
        await eventually(lambda: retained.get("devices/ada/phone/note") is not None)
        await eventually(lambda: not any(len(each.journal) for each in running))
        assert clean.client.is_connected()
        await clean.close()
        await kept.close()


class _Sending:
    is_open = True

    def __init__(self, frames: list[tuple[Any, ...]]) -> None:
        self._frames = frames

    def send(self, *frame: Any) -> None:
        self._frames.append(frame)


class _Way:
    """A worker with one client; the test delivers its frames one by one, as sockets might."""

    def __init__(self, worker_hub: WorkerHub, name: str, clock: Callable[[], float]) -> None:
        self._worker_hub = worker_hub
        self._going: list[tuple[Any, ...]] = []
        self._coming: list[tuple[Any, ...]] = []
        self._router = new_router()
        journal = Journal(
            *(name, lambda *_: None, lambda: 1_000_000, clock, lambda _: None), shared=True
        )
        self._router.keep(journal, 0.0)
        self._neighbours = WorkerPeers(
            self._router,
            journal,
            _Sending(self._going),
            clock=clock,
            schedule=lambda callback: callback(),
            wake=lambda: None,
            in_flight=lambda *_: None,
        )
        self._neighbours.opened()

    def send(self, *frame: Any) -> None:
        """Take a frame of the worker hub."""
        self._coming.append(frame)

    def settle(self) -> None:
        while self.pass_one_on():
            pass

    @property
    def has_session(self) -> bool:
        return ("ada", "phone") in self._router.sessions

    def come(self) -> None:
        Wire(self._router, 0.0).connect("phone", User("ada"), clean=True)

    def pass_one_on(self) -> bool:
        if not self._going:
            return False
        kind, *arguments = self._going.pop(0)
        self._worker_hub.on_frame(self, kind, arguments)
        return True

    def take_one(self) -> bool:
        if not self._coming:
            return False
        kind, *arguments = self._coming.pop(0)
        self._neighbours.on_frame(kind, arguments)
        return True


@given(
    st.lists(st.tuples(st.sampled_from(["come", "pass", "take"]), st.integers(0, 2))),
    st.booleans(),
)
def test_whatever_the_order_of_the_news_the_last_connection_is_left(
    steps: list[tuple[str, int]], clock_stands: bool
) -> None:
    now = 0

    def clock() -> float:
        return now / 1000

    worker_hub = WorkerHub(lambda *_: None, lambda *_: False)
    ways = [_Way(worker_hub, f"worker-{number}", clock) for number in range(3)]
    for way in ways:
        way.settle()
    for step, number in [*steps, ("come", 0)]:
        now += not clock_stands
        way = ways[number]
        if step == "come":
            way.come()
        elif step == "pass":
            way.pass_one_on()
        else:
            way.take_one()
    while sum(way.pass_one_on() + way.take_one() for way in ways):
        pass
    # With a clock that stands still, any one of the connections may be left.
    assert sum(way.has_session for way in ways) == 1
    assert clock_stands or ways[0].has_session


async def test_a_repeated_fix_waits_for_the_worker_that_has_it_under_way() -> None:
    async with workers(3) as running:
        first, second, _ = running
        sent = fix()
        under_way = first.submitter.submit_location(sent)
        second.submitter.repeated = True
        again = second.submitter.submit_location(sent)
        await asyncio.sleep(0.05)
        assert not again.done() and not second.log.appended
        first.log.acknowledge()
        await eventually(again.done)
        assert under_way.done() and again.exception() is None
        assert not second.log.appended
        assert fix_key(sent.device, sent.id) in second.submitter.known_fixes


async def test_a_repeated_fix_that_failed_elsewhere_is_appended_here() -> None:
    async with workers(2) as running:
        first, second = running
        sent = fix()
        lost = first.submitter.submit_location(sent)
        second.submitter.repeated = True
        again = second.submitter.submit_location(sent)
        first.log.fail()
        await eventually(lambda: bool(second.log.appended))
        assert lost.exception() is not None
        second.log.acknowledge()
        await eventually(again.done)
        assert again.exception() is None


# --- interest -----------------------------------------------------------------------------------

LEVELS = st.sampled_from(["devices", "owntracks", "a", "b", ""])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join)
FILTERS = st.lists(st.one_of(LEVELS, st.just("+")), min_size=1, max_size=4).flatmap(
    lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels[:-1], "#"])])
)


@given(FILTERS, TOPICS)
def test_whoever_subscribes_is_told(topic_filter: str, topic: str) -> None:
    key = interest_of(topic_filter)
    assert key is not None
    if matches(topic_filter, topic):
        elsewhere = ElsewhereInterest()
        elsewhere.change([(key, True)])
        assert elsewhere.wants(topic)
        table: InterestTable[str] = InterestTable()
        for worker in "xy":
            table.join(worker)
        table.change("x", [(key, True)])
        assert table.wanting(topic, "y") == {"x"}
        assert not table.wanting(topic, "x")


@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("abc"), st.booleans()), max_size=40)
)
def test_every_worker_knows_what_any_other_one_wants(
    changes: list[tuple[str, str, bool]],
) -> None:
    table: InterestTable[str] = InterestTable()
    told: dict[str, set[str]] = {}
    wanted: dict[str, set[str]] = {}

    def tell(news: dict[str, list[tuple[str, bool]]]) -> None:
        for worker, pairs in news.items():
            for key, is_wanted in pairs:
                (told[worker].add if is_wanted else told[worker].discard)(key)

    for worker, key, is_wanted in changes:
        if worker not in told:
            told[worker] = {each for each, _ in table.join(worker)}
            wanted[worker] = set()
        elif key == "c" and not is_wanted:
            del told[worker], wanted[worker]
            tell(table.leave(worker))
            continue
        (wanted[worker].add if is_wanted else wanted[worker].discard)(key)
        tell(table.change(worker, [(key, is_wanted)]))
        for each, keys in told.items():
            others = [theirs for name, theirs in wanted.items() if name != each]
            assert keys == set().union(*others)


def test_a_worker_that_wants_too_much_is_told_everything() -> None:
    own = OwnInterest(keys_max=10)
    own.count([f"devices/u{n}/+/note" for n in range(20)], True)
    assert (EVERYTHING, True) in own.take_changes(100)
    assert interest_of("devices/ada/phone/address") is None
    own.tell_all()
    told: list[tuple[str, bool]] = []
    while own.has_changed:
        told += own.take_changes(7)
    assert Counter(told)[(EVERYTHING, True)] == 1
    assert len(told) == len(set(told)) == 21


@pytest.mark.parametrize("version", [4, 5])
async def test_a_retained_message_is_delivered_once(version: int) -> None:
    async with workers(2) as running:
        reader = await connected(running[1], "reader", version=version)
        await reader.subscribe("devices/ada/phone/sign")
        sender = await connected(running[0], "sender", version=version)
        await eventually(lambda: len(running[0].server.router.elsewhere) == 1)
        await sender.publish("devices/ada/phone/sign", "1", retain=True)
        assert (await reader.message()).payload == b"1"
        await eventually(
            lambda: running[1].server.router.retained.get("devices/ada/phone/sign") is not None
        )
        assert reader.messages.empty()
        await reader.close()
        await sender.close()
