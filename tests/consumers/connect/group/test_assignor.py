"""How work is divided: balanced, nothing lost, nothing moved that need not be (KIP-415)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from consumers.connect.group.assignor import Assignor, Plan
from consumers.connect.group.work import Work
from consumers.connect.storage.states import TaskId

DELAY_MS = 1000
ROUNDS_MAX = 30


def work_of(connectors: Mapping[str, int]) -> Work:
    """Return connectors with this many tasks each."""
    tasks = [TaskId(name, number) for name, count in connectors.items() for number in range(count)]
    return Work.of(connectors, tasks)


class Group:
    """Members that do what the assignor says, on a clock of their own."""

    def __init__(self, delay_ms: int = DELAY_MS) -> None:
        self.delay_ms = delay_ms
        self.assignor = Assignor(delay_ms)
        self.members: dict[str, Work] = {}
        self.configured = Work()
        self.generation = 0
        self.completed = -1
        self.now_ms = 5_000
        self.moved = Work()

    def round(self) -> Plan:
        """Have all members join once."""
        self.generation += 1
        plan = self.assignor.assign(
            self.configured,
            self.members,
            generation=self.generation,
            completed_generation=self.completed,
            now_ms=self.now_ms,
        )
        self.completed = self.generation
        for member, each in plan.members.items():
            had = self.members[member]
            assert each.revoked.minus(had).is_empty, "only what a member has is revoked"
            assert each.started.both(had).is_empty, "what a member has is not started again"
            self.members[member] = had.minus(each.revoked).plus(each.started)
            assert self.members[member] == each.kept
            self.moved = self.moved.plus(each.revoked.both(self.configured))
        self.check_alone()
        return plan

    def check_alone(self) -> None:
        """Check that nothing has two members."""
        owned = Counter(
            each for work in self.members.values() for each in (*work.connectors, *work.tasks)
        )
        assert not [each for each, count in owned.items() if count > 1]

    def settle(self) -> None:
        """Have members join until nothing changes, waiting where they are told to."""
        for _ in range(ROUNDS_MAX):
            before = dict(self.members)
            plan = self.round()
            self.now_ms += plan.delay_ms
            if before == self.members and not plan.delay_ms:
                return
        raise AssertionError("the group does not come to rest")

    def check_balance(self) -> None:
        """Check that all is done by somebody, and nobody has two more than another."""
        assert Work.union(self.members.values()) == self.configured
        for sizes in (
            [len(each.connectors) for each in self.members.values()],
            [len(each.tasks) for each in self.members.values()],
        ):
            assert max(sizes) - min(sizes) <= 1


def group_of(*members: str, **connectors: int) -> Group:
    group = Group()
    group.members = dict.fromkeys(members, Work())
    group.configured = work_of(connectors)
    group.settle()
    group.moved = Work()
    return group


def test_work_is_given_to_all() -> None:
    group = group_of("x", "y", "z", a=4, b=5)
    group.check_balance()


def test_a_worker_that_joins_gets_its_share_and_nothing_else_moves() -> None:
    group = group_of("x", "y", a=6)
    before = dict(group.members)
    group.members["z"] = Work()
    group.settle()
    group.check_balance()
    assert len(group.moved.tasks) == 2
    for member, work in before.items():
        assert len(group.members[member].both(work).tasks) == 2


def test_a_worker_that_comes_back_in_time_gets_its_work_back() -> None:
    group = group_of("x", "y", "z", a=6)
    before = dict(group.members)
    lost = group.members.pop("z")
    plan = group.round()
    assert plan.delay_ms == DELAY_MS
    assert all(each.started.is_empty and each.revoked.is_empty for each in plan.members.values())
    group.now_ms += DELAY_MS // 2
    group.members["z2"] = Work()
    assert group.round().delay_ms == DELAY_MS - DELAY_MS // 2
    group.now_ms += DELAY_MS
    group.round()
    assert group.members == {"x": before["x"], "y": before["y"], "z2": lost}


def test_the_work_of_a_worker_that_stays_away_is_given_to_others() -> None:
    group = group_of("x", "y", "z", a=6)
    before = dict(group.members)
    del group.members["z"]
    group.settle()
    group.check_balance()
    for member in ("x", "y"):
        assert before[member].minus(group.members[member]).is_empty
    assert group.moved.is_empty


def test_without_a_delay_it_is_given_at_once() -> None:
    group = Group(delay_ms=0)
    group.members = {"x": Work(), "y": Work()}
    group.configured = work_of({"a": 4})
    group.settle()
    del group.members["y"]
    assert group.round().delay_ms == 0
    group.check_balance()


def test_a_deleted_connector_is_revoked_and_leaves_others_alone() -> None:
    group = group_of("x", "y", a=2, b=2)
    group.configured = work_of({"a": 2})
    group.settle()
    assert Work.union(group.members.values()) == group.configured


def test_a_new_leader_leaves_work_where_it_is() -> None:
    group = group_of("x", "y", a=6, b=3)
    before = dict(group.members)
    group.assignor = Assignor(DELAY_MS)
    group.settle()
    assert group.members == before


def test_what_two_workers_have_is_taken_from_both() -> None:
    group = group_of("x", "y", a=4)
    double = Work.of((), (next(iter(group.members["x"].tasks)),))
    group.members["y"] = group.members["y"].plus(double)
    plan = group.assignor.assign(
        group.configured, group.members, generation=99, completed_generation=group.completed,
        now_ms=group.now_ms,
    )  # fmt: skip
    assert all(double.minus(each.revoked).is_empty for each in plan.members.values())
    for member, each in plan.members.items():
        group.members[member] = each.kept
    group.generation = group.completed = 99
    group.settle()
    group.check_balance()


def test_what_was_lost_is_not_given_and_revoked_in_one_round() -> None:
    group = group_of(*(f"m{number}" for number in range(8)), a=5, b=4)
    del group.members["m1"]
    group.round()
    group.members["new"] = Work()
    group.members["newer"] = Work()
    group.settle()
    group.check_balance()


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 7), max_size=8),
    st.integers(1, 6),
    st.integers(1, 6),
)
@settings(deadline=None)
def test_groups_of_any_size_are_balanced_with_the_fewest_moves(
    connectors: dict[str, int], first: int, later: int
) -> None:
    group = Group()
    group.configured = work_of(connectors)
    group.members = {f"m{number}": Work() for number in range(first)}
    group.settle()
    group.check_balance()
    assert group.moved.is_empty
    group.members |= {f"n{number}": Work() for number in range(later)}
    group.settle()
    group.check_balance()
    # Nobody gives more than what the new ones need.
    for kind in ("connectors", "tasks"):
        total = len(getattr(group.configured, kind))
        needed = sum(len(getattr(group.members[f"n{number}"], kind)) for number in range(later))
        assert len(getattr(group.moved, kind)) <= needed <= total


class AnyHistory(RuleBasedStateMachine):
    """Workers come, go and come back, connectors come, go and change, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group()
        self.connectors: dict[str, int] = {}
        self.next = 0

    @initialize()
    def first(self) -> None:
        self.join()

    @rule()
    def join(self) -> None:
        self.next += 1
        self.group.members[f"m{self.next}"] = Work()
        self.group.round()

    @rule(name=st.sampled_from("abcd"), tasks=st.integers(0, 6))
    def configure(self, name: str, tasks: int) -> None:
        self.connectors[name] = tasks
        self.group.configured = work_of(self.connectors)
        self.group.round()

    @precondition(lambda self: self.connectors)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        del self.connectors[data.draw(st.sampled_from(sorted(self.connectors)))]
        self.group.configured = work_of(self.connectors)
        self.group.round()

    @precondition(lambda self: len(self.group.members) > 1)
    @rule(data=st.data(), comes_back=st.booleans())
    def leave(self, data: st.DataObject, comes_back: bool) -> None:
        del self.group.members[data.draw(st.sampled_from(sorted(self.group.members)))]
        if comes_back:
            self.next += 1
            self.group.members[f"m{self.next}"] = Work()
        self.group.round()

    @rule()
    def new_leader(self) -> None:
        self.group.assignor = Assignor(DELAY_MS)
        self.group.round()

    @rule(part=st.integers(0, DELAY_MS * 2))
    def wait(self, part: int) -> None:
        self.group.now_ms += part
        self.group.round()

    @rule()
    def rest(self) -> None:
        self.group.settle()
        self.group.check_balance()

    @invariant()
    def nothing_runs_that_is_not_configured_for_long(self) -> None:
        running = Work.union(self.group.members.values())
        assert running.minus(self.group.configured).is_empty

    def teardown(self) -> None:
        if self.group.members:
            self.rest()


AnyHistory.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
TestAnyHistory = AnyHistory.TestCase


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_group_without_connectors_rests(size: int) -> None:
    group = Group()
    group.members = {f"m{number}": Work() for number in range(size)}
    group.settle()
    assert Work.union(group.members.values()).is_empty
