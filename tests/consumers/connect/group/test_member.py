"""Members of a group that answer each other through its bytes, without a coordinator."""

from __future__ import annotations

from consumers.connect.group.assignor import Assignor
from consumers.connect.group.member import Member
from consumers.connect.group.protocol import EAGER, SESSIONED
from consumers.connect.group.work import Work
from consumers.connect.storage.states import TaskId

WORK = Work.of(("a", "b"), (TaskId("a", 0), TaskId("a", 1)))


def make(number: int) -> Member:
    member = Member(f"http://w{number}:1/", SESSIONED, Assignor(1000))
    member.member_id = f"id-{number}"
    return member


def round_of(
    members: list[Member],
    generation: int,
    configured: Work = WORK,
    offset: int = 5,
    protocol: str = SESSIONED,
) -> None:
    """Have all join; the first one leads. Each has read the configurations up to an offset."""
    joined = {}
    for each in members:
        joined[each.member_id] = dict(each.offered(offset))[protocol]
        each.joined(each.member_id, generation, protocol)
    assigned = members[0].lead(joined, configured, offset, generation * 10)
    for each in members:
        each.synced(assigned[each.member_id])


def test_an_empty_topic_of_configurations_is_no_mismatch() -> None:
    (member,) = (make(1),)
    round_of([member], 1, Work(), offset=-1)
    assert member.assignment is not None
    assert not member.assignment.failed
    assert member.assignment.offset == -1
    assert member.is_leader


def test_members_get_their_part_and_know_the_leader() -> None:
    one, two = make(1), make(2)
    round_of([one, two], 1)
    assert one.work.plus(two.work) == WORK
    assert one.work.both(two.work).is_empty
    assert (one.is_leader, two.is_leader) == (True, False)
    assert one.leader_url == two.leader_url == "http://w1:1/"
    for task in WORK.tasks:
        owner = one if task in one.work.tasks else two
        assert one.owner_of(Work.of((), (task,))) == owner.url
    assert two.owner_of(WORK) is None


def test_eager_members_get_all_work_in_turn() -> None:
    one, two = make(1), make(2)
    round_of([one, two], 1, protocol=EAGER)
    assert one.work == Work.of(("a",), (TaskId("a", 0),))
    assert two.work == Work.of(("b",), (TaskId("a", 1),))
    assert one.owner_of(Work.of(("b",))) == two.url
    # All is assigned anew, whatever somebody had.
    round_of([one], 2, protocol=EAGER)
    assert one.work == WORK


def test_what_an_eager_round_gives_to_others_is_revoked() -> None:
    one, two = make(1), make(2)
    round_of([one], 1)
    before = one.work
    one.joined("id-1", 2, EAGER)
    two.joined("id-2", 2, EAGER)
    members = {each.member_id: dict(each.offered(5))[EAGER] for each in (one, two)}
    assignment = one.synced(one.lead(members, WORK, 5, 0)["id-1"])
    assert assignment.revoked == before.minus(one.work)
    assert not assignment.revoked.is_empty


def test_work_stays_when_a_member_joins_again() -> None:
    one, two = make(1), make(2)
    round_of([one, two], 1)
    before = one.work, two.work
    round_of([one, two], 2)
    assert (one.work, two.work) == before


def test_a_leader_that_has_read_less_has_all_join_again() -> None:
    one, two = make(1), make(2)
    joined = {
        "id-1": dict(one.offered(3))[SESSIONED],
        "id-2": dict(two.offered(7))[SESSIONED],
    }
    ahead = one.furthest(joined, 3)
    assert ahead is not None
    assert (ahead.url, ahead.offset) == (two.url, 7)
    assert one.furthest(joined, 7) is None
    one.joined("id-1", 1, SESSIONED)
    assigned = one.lead(joined, WORK, 3, 0)
    assert one.synced(assigned["id-1"]).failed
    assert one.assignment is not None
    assert one.assignment.offset == 7
    assert one.ahead == ahead
    round_of([one, two], 2)
    assert one.ahead is None


def test_a_member_that_was_cut_off_has_nothing() -> None:
    one = make(1)
    round_of([one], 1)
    assert one.cut_off() == WORK
    assert one.work.is_empty
    assert not one.is_leader
    assert one.leader_url is None


def test_a_member_whose_bytes_cannot_be_read_gets_nothing_and_holds_nobody_up() -> None:
    one = make(1)
    joined = {"id-1": dict(one.offered(5))[SESSIONED], "id-2": b"\0\0"}
    one.joined("id-1", 1, SESSIONED)
    assigned = one.lead(joined, WORK, 5, 0)
    assert one.synced(assigned["id-1"]).work == WORK
