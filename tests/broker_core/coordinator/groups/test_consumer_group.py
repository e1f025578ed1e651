"""Groups of the consumer protocol: step-by-step assignment by the broker, and fencing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core import errors
from broker_core.coordinator.groups.assignors import TopicPartition
from broker_core.coordinator.groups.consumer_group import ConsumerGroup
from broker_core.coordinator.groups.consumer_group_records import read_places
from broker_core.coordinator.groups.consumer_heartbeat import ConsumerHeartbeat, check_heartbeat
from broker_core.coordinator.groups.consumer_member import ConsumerMember, MemberState
from broker_core.coordinator.groups.states import GroupState
from broker_core.coordinator.groups.topic_view import ALL_TOPICS, TopicRights
from tests.broker_core.coordinator.groups.driver import Driver


class Bench:
    """A driver with members that follow the broker's responses."""

    def __init__(self, partitions: int = 6) -> None:
        self.driver = Driver()
        self.driver.topics.create("t", partitions)
        self._tokens = itertools.count()
        #: The epoch and the partitions that each client believes to have.
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, frozenset[tuple[bytes, int]]] = {}
        self.without_answer: set[str] = set()

    @property
    def group(self) -> ConsumerGroup:
        """The group "g"."""
        group = self.driver.coordinator.groups["g"]
        assert isinstance(group, ConsumerGroup)
        return group

    def heartbeat(self, member_id: str, **fields: Any) -> dict[str, Any]:
        """Send one heartbeat; the client does not act on the response."""
        asked = ConsumerHeartbeat(
            "g",
            member_id,
            fields.pop("epoch", self.epochs.get(member_id, 0)),
            fields.pop("instance_id", None),
            None,
            "client",
            "/127.0.0.1",
            fields.pop("rebalance_timeout_ms", -1),
            fields.pop("topics", None),
            fields.pop("regex", None),
            fields.pop("assignor", None),
            fields.pop("owned", None),
            fields.pop("rights", ALL_TOPICS),
        )
        assert not fields
        token = f"h{next(self._tokens)}"
        self.driver.coordinator.consumer_heartbeat(asked, token, self.driver.now)
        self.driver.perform()
        return self.driver.answers[token]

    def join(self, member_id: str, **fields: Any) -> dict[str, Any]:
        """Send the first heartbeat of a client, or of one that begins again."""
        self.owned[member_id] = frozenset()
        answer = self.heartbeat(
            member_id, epoch=0, owned=(),
            **({"topics": ["t"], "rebalance_timeout_ms": 60_000} | fields),
        )  # fmt: skip
        self._listen(member_id, answer)
        return answer

    def poll(self, member_id: str, **fields: Any) -> dict[str, Any]:
        """Send a heartbeat and act on the response; after a lost response, send all fields."""
        everything = {"topics": ["t"], "rebalance_timeout_ms": 60_000}
        more = everything if member_id in self.without_answer else {}
        self.without_answer.discard(member_id)
        answer = self.heartbeat(member_id, owned=self.owned[member_id], **more, **fields)
        self._listen(member_id, answer)
        return answer

    def _listen(self, member_id: str, answer: dict[str, Any]) -> None:
        if answer["error_code"]:
            self.epochs.pop(member_id, None)
            self.owned[member_id] = frozenset()
            return
        self.epochs[member_id] = answer["member_epoch"]
        if "assignment" in answer:
            self.owned[member_id] = read_places(answer["assignment"]["topic_partitions"])

    def settle(self) -> None:
        """Send heartbeats until nothing changes any more."""
        for _ in range(10):
            for member_id in list(self.epochs):
                self.poll(member_id)
            if self.group.state is GroupState.STABLE:
                return
        raise AssertionError(self.group.state)

    def counts(self) -> list[int]:
        """Return how many partitions each member has, sorted."""
        return sorted(len(self.owned[member_id]) for member_id in self.epochs)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_first_member_gets_everything_at_once(bench: Bench) -> None:
    answer = bench.join("a")
    assert (answer["error_code"], answer["member_epoch"]) == (errors.NONE, 1)
    assert bench.counts() == [6]
    assert bench.group.state is GroupState.STABLE


def test_a_partition_moves_after_its_owner_has_let_go(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    assert bench.owned["b"] == frozenset()
    assert bench.group.state is GroupState.RECONCILING
    bench.poll("a")
    assert len(bench.owned["a"]) == 3
    bench.poll("b")
    assert bench.owned["b"] == frozenset()  # a was told to revoke, but has not confirmed it
    bench.poll("a")
    bench.poll("b")
    assert bench.counts() == [3, 3]
    assert bench.epochs == {"a": 2, "b": 2}


def test_who_leaves_makes_room(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    bench.settle()
    assert bench.heartbeat("b", epoch=-1)["member_epoch"] == -1
    del bench.epochs["b"]
    bench.settle()
    assert bench.counts() == [6]


def test_who_is_silent_is_removed_and_fenced(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    bench.settle()
    for _ in range(5):
        bench.driver.advance(10_000)
        bench.poll("a")
    assert list(bench.group.members) == ["a"]
    assert bench.poll("b")["error_code"] == errors.UnknownMemberId.code
    bench.settle()
    assert bench.counts() == [6]


def test_who_does_not_let_go_in_its_time_is_removed(bench: Bench) -> None:
    bench.join("a", rebalance_timeout_ms=20_000)
    stubborn = bench.owned["a"]
    bench.join("b")
    for _ in range(3):
        bench.heartbeat("a", owned=stubborn)
        bench.poll("b")
        bench.driver.advance(9_000)
    assert bench.heartbeat("a", owned=stubborn)["error_code"] == errors.UnknownMemberId.code


def test_epochs_that_are_not_the_members_are_fenced(bench: Bench) -> None:
    bench.join("a")
    fenced = errors.FencedMemberEpoch.code
    assert bench.heartbeat("a", epoch=2, owned=())["error_code"] == fenced
    bench.join("b")
    bench.settle()
    # The response with the new epoch was lost: the old epoch is still accepted.
    assert bench.heartbeat("a", epoch=1, owned=bench.owned["a"])["member_epoch"] == 2
    assert bench.heartbeat("a", epoch=1)["error_code"] == fenced
    assert bench.heartbeat("z", epoch=3)["error_code"] == errors.UnknownMemberId.code


def test_a_static_member_takes_its_partitions_up_again(bench: Bench) -> None:
    bench.join("a", instance_id="one")
    bench.join("b", instance_id="two")
    for _ in range(4):
        for member, instance in (("a", "one"), ("b", "two")):
            bench._listen(
                member,
                bench.heartbeat(member, instance_id=instance, owned=bench.owned[member]),
            )
    before, epoch = bench.owned["b"], bench.group.epoch
    refused = bench.join("c", instance_id="two")
    assert refused["error_code"] == errors.UnreleasedInstanceId.code
    assert bench.heartbeat("b", epoch=-2, instance_id="two")["member_epoch"] == -2
    bench.join("c", instance_id="two")
    assert bench.owned["c"] == before
    assert bench.group.epoch == epoch
    late = bench.heartbeat("b", epoch=2, instance_id="two")
    assert late["error_code"] == errors.FencedInstanceId.code


def test_topics_that_match_or_grow_are_assigned_with_the_next_heartbeat(bench: Bench) -> None:
    bench.join("a", topics=None, regex="t.*")
    assert bench.counts() == [6]
    bench.driver.topics.create("t2", 2)
    bench.driver.topics.create("other", 2)
    bench.poll("a")
    assert bench.counts() == [8]
    bench.driver.topics.create("t2", 4)
    bench.poll("a")
    assert bench.counts() == [10]
    bench.driver.topics.delete("t2")
    bench.poll("a")
    assert bench.counts() == [6]
    answer = bench.join("b", topics=None, regex="(")
    assert answer["error_code"] == errors.InvalidRegularExpression.code


class Rights:
    """The rights of some clients, which may change."""

    def __init__(self, key: str, *topics: str) -> None:
        self.key = key
        self.topics = set(topics)
        self.version = 0

    def change(self, *topics: str) -> None:
        self.topics = set(topics)
        self.version += 1

    @property
    def now(self) -> TopicRights:
        return TopicRights(self.topics.__contains__, self.key, self.version)


def test_a_regular_expression_stands_for_topics_that_the_member_may_describe(bench: Bench) -> None:
    few, many = Rights("ada", "t"), Rights("eve", "t", "t2", "t3")
    bench.driver.topics.create("t2", 2)

    def topics_of(member_id: str) -> set[str | None]:
        return {bench.driver.topics.name_of(topic) for topic, _ in bench.owned[member_id]}

    def beat() -> None:
        for _ in range(3):
            for member_id, rights in (("a", few), ("b", many)):
                bench.poll(member_id, rights=rights.now)

    bench.join("a", topics=None, regex="t.*", rights=few.now)
    bench.join("b", topics=None, regex="t.*", rights=many.now)
    beat()
    assert (topics_of("a"), topics_of("b")) == ({"t"}, {"t", "t2"})
    bench.driver.topics.create("t3", 1)
    beat()
    assert (topics_of("a"), topics_of("b")) == ({"t"}, {"t", "t2", "t3"})
    epoch = bench.group.epoch
    bench.driver.restart()
    beat()
    assert (topics_of("a"), topics_of("b")) == ({"t"}, {"t", "t2", "t3"})
    assert bench.group.epoch == epoch
    few.change("t", "t3")
    many.change()
    beat()
    assert (topics_of("a"), topics_of("b")) == ({"t", "t3"}, set())


def test_members_with_the_same_rights_learn_of_a_new_topic_at_once(bench: Bench) -> None:
    rights = Rights("ada", "t", "t2")
    for member_id in "abc":
        bench.join(member_id, topics=None, regex="t.*", rights=rights.now)
    for member_id in "abcabc":
        bench.poll(member_id, rights=rights.now)
    epoch = bench.group.epoch
    bench.driver.topics.create("t2", 3)
    for member_id in "abcabc":
        bench.poll(member_id, rights=rights.now)
    assert bench.group.epoch == epoch + 1
    assert sorted(bench.counts()) == [3, 3, 3]


def test_a_group_goes_on_after_a_restart_as_if_there_was_none(bench: Bench) -> None:
    bench.join("a", instance_id="one")
    bench.join("b")
    bench._listen("a", bench.heartbeat("a", instance_id="one", owned=bench.owned["a"]))
    before = (bench.group.epoch, bench.group.target, bench.group.members)
    bench.driver.restart()
    assert (bench.group.epoch, bench.group.target, bench.group.members) == before
    for _ in range(3):
        bench._listen("a", bench.heartbeat("a", instance_id="one", owned=bench.owned["a"]))
        bench.poll("b")
    assert bench.counts() == [3, 3]
    assert bench.group.epoch == before[0]


def test_topics_that_members_have_in_common_are_looked_up_once(bench: Bench) -> None:
    topics = [f"t{each}" for each in range(30)]
    for name in topics:
        bench.driver.topics.create(name, 1)
    for member_id in "abcdefghij":
        bench.join(member_id, topics=topics)
    assert bench.driver.topics.found == len(topics)
    bench.driver.topics.create("t0", 2)
    bench.poll("a")
    assert bench.driver.topics.found == 2 * len(topics)
    # What was stored is held once as well.
    bench.driver.restart()
    assert len({id(each.topic_names) for each in bench.group.members.values()}) == 1
    bench.settle()
    assert sum(bench.counts()) == 31


def test_to_wait_for_many_partitions_takes_no_more_than_to_get_them() -> None:
    class Counted(frozenset[TopicPartition]):
        """Counts how often its elements are copied."""

        copies = 0

        def __or__(self, other: Any) -> frozenset[Any]:
            Counted.copies += 1
            return super().__or__(other)

    target = frozenset((b"t" * 16, each) for each in range(100))
    member = ConsumerMember("m", assigned=Counted())
    after = member.reconcile(target, 1, (), lambda _: False)
    assert after.state is MemberState.UNRELEASED_PARTITIONS
    assert Counted.copies < 10


def test_offsets_are_those_of_the_members_of_today(bench: Bench) -> None:
    bench.join("a")
    assert bench.driver.commit("c1", "a", 1, 5) == errors.NONE
    assert bench.driver.commit("c2", "a", 0, 6) == errors.StaleMemberEpoch.code
    assert bench.driver.commit("c3", "b", 1, 6) == errors.UnknownMemberId.code
    assert bench.driver.committed() == 5


def test_offsets_of_topics_that_nobody_reads_any_more_expire(bench: Bench) -> None:
    bench.join("a")
    bench.driver.commit("c1", "a", 1, 5)
    bench.driver.wait_without_heartbeats(8 * 24 * 60 * 60_000)
    bench.driver.coordinator.expire_offsets(bench.driver.now)
    bench.driver.perform()
    assert bench.driver.committed() == 5
    bench.driver.topics.create("u", 1)
    bench._listen("a", bench.heartbeat("a", topics=["u"], owned=bench.owned["a"]))
    for _ in range(3):
        bench.poll("a")
    bench.driver.coordinator.expire_offsets(bench.driver.now)
    bench.driver.perform()
    assert bench.driver.committed() is None


def test_a_group_changes_its_protocol_when_nobody_is_in_it(bench: Bench) -> None:
    bench.join("a")
    bench.driver.commit("c1", "a", 1, 5)
    refused = bench.driver.join("j1", protocol_type="connect")
    assert refused is not None
    assert refused["error_code"] == errors.InconsistentGroupProtocol.code
    bench.heartbeat("a", epoch=-1)
    joined = bench.driver.join("j2")
    assert joined is not None and joined["error_code"] == errors.NONE
    bench.driver.sync("s1", joined["member_id"], joined["generation_id"])
    assert bench.driver.committed() == 5
    answer = bench.join("b")
    assert answer["error_code"] == errors.GroupIdNotFound.code
    bench.driver.leave(joined["member_id"])
    assert bench.join("b")["error_code"] == errors.NONE
    assert bench.driver.committed() == 5
    bench.driver.restart()
    assert list(bench.group.members) == ["b"]
    assert bench.driver.committed() == 5


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"group_id": ""}, "GroupId"),
        ({"instance_id": ""}, "InstanceId"),
        ({"rack_id": ""}, "RackId"),
        ({"member_id": "", "epoch": 1}, "MemberId"),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs"),
        ({"owned": None}, "TopicPartitions"),
        ({"topic_names": None}, "SubscribedTopic"),
        ({"epoch": -2}, "InstanceId"),
        ({"epoch": -3}, "MemberEpoch"),
        ({"assignor": "best"}, "ServerAssignor best is not supported"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], problem: str) -> None:
    asked = ConsumerHeartbeat(
        "g", "m", 0, None, None, "client", "/127.0.0.1", 1000, ["t"], None, None, ()
    )
    check_heartbeat(asked, needs_member_id=True)
    for name, value in fields.items():
        setattr(asked, name, value)
    with pytest.raises((errors.InvalidRequest, errors.UnsupportedAssignor), match=problem):
        check_heartbeat(asked, needs_member_id=False)


class Members(RuleBasedStateMachine):
    """Members join, leave, lose responses and forget; the broker restarts."""

    @initialize()
    def begin(self) -> None:
        self.bench = Bench(partitions=5)

    @rule(member=st.sampled_from("abcd"))
    def join_or_join_again(self, member: str) -> None:
        self.bench.join(member)

    @rule(member=st.sampled_from("abcd"))
    def poll(self, member: str) -> None:
        if member in self.bench.epochs:
            self.bench.poll(member)

    @rule(member=st.sampled_from("abcd"))
    def lose_an_answer(self, member: str) -> None:
        if member in self.bench.epochs:
            self.bench.heartbeat(member, owned=self.bench.owned[member])
            self.bench.without_answer.add(member)

    @rule(member=st.sampled_from("abcd"))
    def leave(self, member: str) -> None:
        if member in self.bench.epochs:
            self.bench.heartbeat(member, epoch=-1)
            del self.bench.epochs[member]
            self.bench.owned[member] = frozenset()

    @rule(partitions=st.integers(1, 7))
    def change_the_topic(self, partitions: int) -> None:
        self.bench.driver.topics.create("t", partitions)

    @precondition(lambda self: "g" in self.bench.driver.coordinator.groups)
    @rule()
    def restart(self) -> None:
        self.bench.driver.restart()

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owned = [
            place
            for member, places in self.bench.owned.items()
            if member in self.bench.epochs
            for place in places
        ]
        assert len(owned) == len(set(owned))

    def teardown(self) -> None:
        if not hasattr(self, "bench") or not self.bench.epochs:
            return
        for member in list(self.bench.epochs):
            self.bench.poll(member)
        # A member that lost two responses in a row has been fenced, and begins again.
        for member in set(self.bench.group.members) - self.bench.epochs.keys():
            self.bench.join(member)
        self.bench.settle()
        counts = self.bench.counts()
        assert counts[-1] - counts[0] < 2


Members.TestCase.settings = settings(max_examples=50, stateful_step_count=25)
TestMembers = Members.TestCase
