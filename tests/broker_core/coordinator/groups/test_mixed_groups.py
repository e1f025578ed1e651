"""Members of both protocols in one group: no partition ever has two owners."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core import errors
from broker_core.coordinator.groups.consumer_group import ConsumerGroup
from broker_core.coordinator.groups.consumer_group_records import read_places
from broker_core.coordinator.groups.consumer_heartbeat import ConsumerHeartbeat
from broker_core.coordinator.groups.group import Group
from broker_core.coordinator.groups.member import JoinRequest
from broker_core.coordinator.groups.migration_policy import MigrationPolicy
from broker_core.coordinator.groups.states import GroupState
from broker_core.coordinator.groups.subscription import (
    CustomUserData,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    subscribed_topics,
)
from broker_core.protocol.errors import RemoteProtocolError
from tests.broker_core.coordinator.groups.driver import Driver

Place = tuple[bytes, int]
NOTHING: frozenset[Place] = frozenset()


def subscription(driver: Driver, owned: frozenset[Place] = NOTHING) -> bytes:
    """Return metadata of version 1 of a consumer that subscribes to topic t."""
    numbers = sorted(partition for _, partition in owned)
    data = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"
    if not numbers:
        return data + bytes(4)
    places = b"".join(each.to_bytes(4, "big") for each in numbers)
    return data + b"\0\0\0\1" + b"\0\1t" + len(numbers).to_bytes(4, "big") + places


@dataclass
class Client:
    """The client's view of a consumer, for either protocol."""

    bench: Bench
    name: str
    owned: frozenset[Place] = NOTHING
    member_id: str = ""
    instance_id: str | None = None

    def lose(self) -> None:
        """Forget membership and partitions: the client was told that it is no member."""
        self.owned = NOTHING
        self.member_id = ""


@dataclass
class Modern(Client):
    """A client of the consumer protocol."""

    epoch: int = 0

    def step(self) -> None:
        """Send one heartbeat."""
        if not self.member_id:
            self.member_id, self.epoch = f"{self.name}-{self.bench.number()}", 0
        first = self.epoch == 0
        answer = self.bench.heartbeat(self, owned=NOTHING if first else self.owned, full=first)
        if answer["error_code"]:
            self.lose()
            return
        self.epoch = answer["member_epoch"]
        if answer.get("assignment") is not None:
            self.owned = read_places(answer["assignment"]["topic_partitions"])

    def leave(self) -> None:
        """Leave the group."""
        if self.member_id:
            self.epoch = -1
            self.bench.heartbeat(self, owned=None)
        self.lose()

    @property
    def is_settled(self) -> bool:
        """Tell whether it is a member."""
        return bool(self.member_id)


@dataclass
class Classic(Client):
    """A client of the classic protocol, with eager or cooperative rebalancing."""

    cooperates: bool = False
    generation: int = -1
    wants_to_join: bool = True
    token: str | None = None
    kind: str = ""
    led: list[dict[str, Any]] = field(default_factory=list)

    def step(self) -> None:
        """Do the next step of the protocol."""
        if self.token is not None:
            answer = self.bench.driver.answers.pop(self.token, None)
            if answer is not None:
                self.token = None
                (self._joined if self.kind == "join" else self._synced)(answer)
        elif self.wants_to_join:
            self._join()
        elif self.kind == "join":
            self._sync()
        else:
            self._heartbeat()

    def _join(self) -> None:
        if not self.cooperates:
            self.owned = NOTHING
        self.kind, self.token = "join", f"{self.name}-{self.bench.number()}"
        self.bench.join(self)

    def _joined(self, answer: dict[str, Any]) -> None:
        code = answer["error_code"]
        if code in {errors.NONE, errors.MemberIdRequired.code}:
            self.member_id = answer["member_id"]
            self.generation = answer["generation_id"]
            self.led = answer["members"]
            self.wants_to_join = code != errors.NONE
        elif code != errors.RebalanceInProgress.code:
            self._refused(code)

    def _sync(self) -> None:
        self.kind, self.token = "sync", f"{self.name}-{self.bench.number()}"
        self.bench.sync(self, self._lead() if self.led else {})

    def _lead(self) -> dict[str, bytes]:
        """Assign the partitions; those that still have an owner go to nobody else yet."""
        members = {each["member_id"]: each["metadata"] for each in self.led}
        owners = {
            partition: member_id
            for member_id, metadata in members.items()
            for _, partition in decode_subscription(metadata).owned
        }
        names = sorted(members)
        shares: dict[str, set[Place]] = {name: set() for name in names}
        for partition in range(self.bench.partitions):
            name = names[partition % len(names)]
            if owners.get(partition, name) == name:
                shares[name].add((self.bench.driver.topics.id_of("t"), partition))
        return {
            name: encode_assignment(places, members[name], self.bench.driver.topics)
            for name, places in shares.items()
        }

    def _synced(self, answer: dict[str, Any]) -> None:
        code = answer["error_code"]
        if code == errors.NONE:
            given = decode_assignment(answer["assignment"], self.bench.driver.topics)
            # A member that has revoked partitions joins again, so that others get them.
            self.wants_to_join = bool(self.owned - given)
            self.owned = given
            return
        self.wants_to_join = True
        if code != errors.RebalanceInProgress.code:
            self._refused(code)

    def _heartbeat(self) -> None:
        code = self.bench.driver.heartbeat(self.member_id, self.generation, self.instance_id)
        self.wants_to_join = code != errors.NONE
        if code not in {errors.NONE, errors.RebalanceInProgress.code}:
            self._refused(code)

    def _refused(self, code: int) -> None:
        # As in librdkafka and the Java client: an old generation does not require a new id.
        member_id = self.member_id if code == errors.IllegalGeneration.code else ""
        self.lose()
        self.member_id = member_id

    def leave(self) -> None:
        """Leave the group."""
        if self.member_id:
            self.bench.driver.leave(self.member_id)
        self.lose()

    def lose(self) -> None:
        """Do as every client, and join again."""
        super().lose()
        self.wants_to_join, self.token, self.kind, self.led = True, None, "", []

    @property
    def is_settled(self) -> bool:
        """Tell whether it has its assignment and need not join again."""
        return (
            bool(self.member_id)
            and not self.wants_to_join
            and (self.kind, self.token)
            == (
                "sync",
                None,
            )
        )


class Bench:
    """A coordinator and its clients."""

    def __init__(self, partitions: int = 5, **settings: Any) -> None:
        self.partitions = partitions
        self.driver = Driver(**settings)
        self.driver.topics.create("t", partitions)
        self.clients: list[Modern | Classic] = []
        self._numbers: Iterator[int] = iter(range(10_000_000))

    def number(self) -> int:
        """Return a number that was not used before."""
        return next(self._numbers)

    def modern(self, name: str, **more: Any) -> Modern:
        """Add a client of the consumer protocol."""
        client = Modern(self, name, **more)
        self.clients.append(client)
        return client

    def classic(self, name: str, **more: Any) -> Classic:
        """Add a client of the classic protocol."""
        client = Classic(self, name, **more)
        self.clients.append(client)
        return client

    def heartbeat(
        self, client: Modern, *, owned: frozenset[Place] | None, full: bool = False
    ) -> dict[str, Any]:
        """Send ConsumerGroupHeartbeat; return the response."""
        token = f"h{self.number()}"
        self.driver.coordinator.consumer_heartbeat(
            ConsumerHeartbeat(
                "g",
                client.member_id,
                client.epoch,
                client.instance_id,
                None,
                "client",
                "/127.0.0.1",
                60_000 if full else -1,
                ["t"] if full else None,
                None,
                None,
                owned,
            ),
            token,
            self.driver.now,
        )
        self.driver.perform()
        return self.driver.answers.pop(token)

    def join(self, client: Classic) -> None:
        """Send JoinGroup."""
        request = JoinRequest(
            "g",
            client.member_id,
            client.instance_id,
            "client",
            "/127.0.0.1",
            10_000,
            60_000,
            "consumer",
            [("range", subscription(self.driver, client.owned))],
            require_known_member_id=True,
        )
        self.driver.coordinator.join_group(request, client.token, self.driver.now)
        self.driver.perform()

    def sync(self, client: Classic, shares: dict[str, bytes]) -> None:
        """Send SyncGroup."""
        self.driver.coordinator.sync_group(
            {
                "group_id": "g",
                "member_id": client.member_id,
                "group_instance_id": client.instance_id,
                "generation_id": client.generation,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": [
                    {"member_id": name, "assignment": share} for name, share in shares.items()
                ],
            },
            client.token,
            self.driver.now,
        )
        self.driver.perform()

    def check(self) -> None:
        """Check that no partition has two owners."""
        owned = [place for client in self.clients for place in client.owned]
        assert len(owned) == len(set(owned)), self.clients

    def settle(self) -> None:
        """Run until every client has its assignment, and all partitions are assigned."""
        for _ in range(100):
            for client in self.clients:
                client.step()
                self.check()
            self.driver.advance(100)
            everything = sum(len(client.owned) for client in self.clients)
            if (
                all(client.is_settled for client in self.clients)
                and everything == self.partitions
                and self.driver.coordinator.groups["g"].state is GroupState.STABLE
            ):
                return
        raise AssertionError([vars(client) for client in self.clients])

    @property
    def is_classic(self) -> bool:
        """Tell whether the group uses the classic protocol."""
        return isinstance(self.driver.coordinator.groups["g"], Group)

    def counts(self) -> list[int]:
        """Return how many partitions each client has."""
        return [len(client.owned) for client in self.clients]


@pytest.mark.parametrize("cooperates", [False, True])
def test_a_group_goes_over_to_the_consumer_protocol_and_back(cooperates: bool) -> None:
    bench = Bench(partitions=6)
    old = [bench.classic(name, cooperates=cooperates) for name in "ab"]
    bench.settle()
    assert bench.is_classic and bench.counts() == [3, 3]
    new = bench.modern("c")
    bench.settle()
    assert not bench.is_classic and bench.counts() == [2, 2, 2]
    bench.driver.restart()
    bench.settle()
    assert bench.counts() == [2, 2, 2]
    new.leave()
    bench.clients = list(old)
    assert bench.is_classic
    bench.driver.restart()
    bench.settle()
    assert bench.is_classic and bench.counts() == [3, 3]


def test_a_group_stays_what_it_is_while_somebody_speaks_the_consumer_protocol() -> None:
    bench = Bench()
    first, second, old = bench.modern("a"), bench.modern("b"), bench.classic("c")
    bench.settle()
    first.leave()
    bench.clients = [second, old]
    bench.settle()
    assert not bench.is_classic
    old.leave()
    bench.clients = [second]
    bench.settle()
    assert not bench.is_classic and bench.counts() == [5]


def test_the_last_new_member_that_is_silent_leaves_a_classic_group() -> None:
    bench = Bench()
    silent, old = bench.modern("a"), bench.classic("b")
    bench.settle()
    bench.clients = [old]
    silent.lose()
    for _ in range(12):
        bench.driver.advance(5_000)
        old.step()
    bench.settle()
    assert bench.is_classic and bench.counts() == [5]


@pytest.mark.parametrize("kind", ["join", "sync"])
def test_a_classic_member_that_does_not_answer_in_time_is_given_up(kind: str) -> None:
    bench = Bench()
    new, old = bench.modern("a"), bench.classic("b", cooperates=True)
    bench.settle()
    bench.modern("c")
    while old.kind != kind or not (old.wants_to_join or kind == "join"):
        for client in bench.clients:
            client.step()
        if kind == "sync" and old.wants_to_join:
            break
    # It continues with its heartbeats, but does nothing else.
    group = bench.driver.coordinator.groups["g"]
    assert isinstance(group, ConsumerGroup)
    for _ in range(31):
        bench.driver.advance(2_000)
        bench.driver.heartbeat(old.member_id, old.generation)
        new.step()
        bench.clients[2].step()
    assert old.member_id not in group.members
    old.lose()
    bench.settle()


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        (MigrationPolicy.BIDIRECTIONAL, True, True),
        (MigrationPolicy.UPGRADE, True, False),
        (MigrationPolicy.DOWNGRADE, False, True),
        (MigrationPolicy.DISABLED, False, False),
    ],
)
def test_the_policy_says_which_way_a_group_may_go(
    policy: MigrationPolicy, upgrades: bool, downgrades: bool
) -> None:
    bench = Bench(migration=policy)
    old = bench.classic("a")
    bench.settle()
    new = Modern(bench, "b")
    new.step()
    assert bool(new.member_id) is upgrades
    assert bench.is_classic is not upgrades
    old.leave()
    new.lose()
    bench = Bench(migration=policy)
    new, old = bench.modern("a"), bench.classic("b")
    bench.settle()
    new.leave()
    bench.clients = [old]
    assert bench.is_classic is downgrades
    bench.settle()
    assert bench.counts() == [5]


def test_a_group_that_is_too_large_stays_as_it_is() -> None:
    bench = Bench(size_max=1)
    new, old, older = bench.modern("a"), bench.classic("b"), bench.classic("c")
    bench.settle()
    new.leave()
    bench.clients = [old, older]
    bench.settle()
    assert not bench.is_classic


@pytest.mark.parametrize(
    "seed", [*range(15), *(pytest.param(each, marks=pytest.mark.long) for each in range(15, 300))]
)
def test_random_clients_of_both_protocols_converge(seed: int) -> None:
    source = random.Random(seed)
    bench = Bench(partitions=source.randint(1, 7))
    cooperates = source.random() < 0.6
    for step in range(250):
        choice = source.random()
        if choice < 0.05 and len(bench.clients) < 5:
            name = f"n{step}"
            if source.random() < 0.5:
                bench.modern(name)
            else:
                bench.classic(name, cooperates=cooperates)
        elif choice < 0.07 and bench.clients:
            client = source.choice(bench.clients)
            client.leave()
            bench.clients.remove(client)
        elif choice < 0.09 and not any(
            isinstance(client, Classic) and client.token for client in bench.clients
        ):
            # A real client would repeat a request without a response; these clients do not.
            bench.driver.restart()
        elif choice < 0.11 and bench.clients:
            # A client disappears without leaving, and is removed when its session times out.
            client = source.choice(bench.clients)
            bench.clients.remove(client)
            client.lose()
        elif bench.clients:
            source.choice(bench.clients).step()
            bench.driver.advance(source.choice([0, 10, 200]))
        bench.check()
    if not bench.clients:
        bench.modern("last")
    for _ in range(60):
        # Members whose clients have disappeared are removed now.
        bench.driver.advance(1_000)
        for client in bench.clients:
            client.step()
            bench.check()
    bench.settle()
    assert bench.is_classic or any(isinstance(each, Modern) for each in bench.clients)


@given(st.binary(max_size=60))
def test_whatever_a_member_says_is_read_or_refused(data: bytes) -> None:
    driver = Driver()
    assert subscribed_topics(data) is None or decode_subscription(data).topics is not None
    with contextlib.suppress(RemoteProtocolError, CustomUserData):
        decode_assignment(data, driver.topics)


def test_subscriptions_of_all_versions_are_read() -> None:
    topics = b"\0\0\0\1\0\1t"
    nobody = b"\xff\xff\xff\xff"
    owned = b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\3\0\0\0\4"
    old = decode_subscription(b"\0\0" + topics + nobody)
    assert (old.topics, old.owned, old.rack_id) == (frozenset({"t"}), frozenset(), None)
    new = decode_subscription(b"\0\3" + topics + nobody + owned + b"\0\0\0\7" + b"\0\4rack")
    assert (new.owned, new.rack_id) == (frozenset({("t", 3), ("t", 4)}), "rack")
    newer = decode_subscription(
        b"\0\x09" + topics + nobody + owned + b"\0\0\0\7" + b"\xff\xff" + b"more"
    )
    assert newer.owned == new.owned
