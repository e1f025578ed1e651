"""The life cycle of a classic group, step by step."""

from __future__ import annotations

import random

import pytest

from broker_core import errors
from broker_core.coordinator.groups.states import GroupState
from tests.broker_core.coordinator.groups.driver import Driver


@pytest.fixture
def driver() -> Driver:
    """A coordinator without groups."""
    return Driver()


def two_members(driver: Driver) -> tuple[str, str, int]:
    """Make a stable group of two; return (leader, follower, generation)."""
    first = driver.join("j1")
    assert first is not None
    leader = first["member_id"]
    assert driver.join("j2") is None
    again = driver.join("j3", leader)
    assert again is not None
    follower = driver.answers["j2"]["member_id"]
    generation = again["generation_id"]
    assert driver.answers["j2"]["generation_id"] == generation
    assert driver.sync("s2", follower, generation) is None
    names = {leader.replace("-", "_"): "one", follower.replace("-", "_"): "two"}
    assert driver.sync("s1", leader, generation, **names) is not None
    assert driver.answers["s1"]["assignment"] == b"one"
    assert driver.answers["s2"]["assignment"] == b"two"
    return leader, follower, generation


def state(driver: Driver) -> GroupState:
    """Return the group's state."""
    return driver.group.state


def test_a_first_member_becomes_the_leader(driver: Driver) -> None:
    answer = driver.join("j1", protocols=("range", "roundrobin"))
    assert answer is not None
    assert answer["leader"] == answer["member_id"] == "client-1"
    assert answer["generation_id"] == 1
    assert answer["protocol_name"] == "range"
    assert [each["metadata"] for each in answer["members"]] == [b"j1 on range"]
    assert state(driver) is GroupState.COMPLETING_REBALANCE
    assert driver.heartbeat("client-1", 1) == 0
    synced = driver.sync("s1", "client-1", 1, client_1="everything")
    assert synced is not None
    assert synced["assignment"] == b"everything"
    assert state(driver) is GroupState.STABLE


def test_a_second_member_makes_the_first_join_again(driver: Driver) -> None:
    leader, follower, generation = two_members(driver)
    assert generation == 2
    assert state(driver) is GroupState.STABLE
    assert driver.heartbeat(leader, 2) == driver.heartbeat(follower, 2) == 0
    # Only the leader gets the list of members.
    assert driver.answers["j2"]["members"] == []
    assert len(driver.answers["j3"]["members"]) == 2


def test_a_new_member_is_first_told_its_id(driver: Driver) -> None:
    answer = driver.join("j1", require_known_member_id=True)
    assert answer is not None
    assert answer["error_code"] == errors.MemberIdRequired.code
    assert driver.group.members == {}
    second = driver.join("j2", answer["member_id"], require_known_member_id=True)
    assert second is not None
    assert second["error_code"] == 0


def test_an_id_that_is_never_used_does_not_hold_up_the_group(driver: Driver) -> None:
    driver.join("j1")
    driver.sync("s1", "client-1", 1, client_1="x")
    driver.join("j2", require_known_member_id=True, session_timeout_ms=6_000)
    assert driver.join("j3", "client-1") is None  # the leader asks for a rebalance
    driver.advance(6_000)
    assert driver.answers["j3"]["generation_id"] == 2


def test_members_vote_for_a_protocol_that_all_have(driver: Driver) -> None:
    driver.join("j1", protocols=("a", "b", "c"))
    driver.join("j2", protocols=("c", "b"))
    again = driver.join("j3", "client-1", protocols=("a", "b", "c"))
    assert again is not None
    assert again["protocol_name"] in {"b", "c"}
    refused = driver.join("j4", protocols=("d",))
    assert refused is not None
    assert refused["error_code"] == errors.InconsistentGroupProtocol.code
    other_type = driver.join("j5", protocol_type="connect", protocols=("b",))
    assert other_type is not None
    assert other_type["error_code"] == errors.InconsistentGroupProtocol.code


def test_a_forming_group_waits_for_more_members() -> None:
    driver = Driver(initial_rebalance_delay_ms=3_000)
    assert driver.join("j1") is None
    driver.advance(2_000)
    assert driver.join("j2") is None
    driver.advance(999)
    assert driver.answers == {}
    # A member joined, so the group waits once more; then nobody joined.
    driver.advance(3_001)
    assert driver.answers["j1"]["generation_id"] == driver.answers["j2"]["generation_id"] == 1


def test_a_member_without_heartbeats_is_removed(driver: Driver) -> None:
    leader, follower, generation = two_members(driver)
    driver.advance(9_000)
    assert driver.heartbeat(leader, generation) == 0
    driver.advance(1_000)
    assert list(driver.group.members) == [leader]
    assert driver.heartbeat(leader, generation) == errors.RebalanceInProgress.code
    assert driver.heartbeat(follower, generation) == errors.UnknownMemberId.code
    again = driver.join("j9", leader)
    assert again is not None
    assert again["generation_id"] == generation + 1


def test_a_member_that_does_not_rejoin_is_removed_after_the_rebalance_timeout(
    driver: Driver,
) -> None:
    leader, follower, generation = two_members(driver)
    assert driver.join("j9", leader) is None
    for _ in range(6):
        driver.advance(9_000)
        driver.heartbeat(follower, generation)  # alive, but never joins
    assert "j9" not in driver.answers
    driver.advance(6_000)
    assert driver.answers["j9"]["generation_id"] == generation + 1
    assert list(driver.group.members) == [leader]


def test_a_member_that_does_not_sync_is_removed_after_the_rebalance_timeout(
    driver: Driver,
) -> None:
    driver.join("j1")
    driver.join("j2", session_timeout_ms=1_000_000, rebalance_timeout_ms=30_000)
    driver.join("j3", "client-1", rebalance_timeout_ms=30_000)
    assert driver.sync("s2", "client-2", 2) is None
    for _ in range(3):
        driver.advance(9_000)
        driver.heartbeat("client-1", 2)
    driver.advance(3_000)
    # The leader never sent the assignment: the other member has to begin again.
    assert list(driver.group.members) == ["client-2"]
    assert driver.answers["s2"]["error_code"] == errors.RebalanceInProgress.code


def test_the_last_member_leaves_an_empty_group_with_its_offsets(driver: Driver) -> None:
    leader, follower, generation = two_members(driver)
    assert driver.commit("c1", leader, generation, 7) == 0
    assert driver.leave(follower) == 0
    assert driver.heartbeat(leader, generation) == errors.RebalanceInProgress.code
    assert driver.leave(leader) == 0
    assert state(driver) is GroupState.EMPTY
    assert driver.committed() == 7
    assert driver.leave("nobody") == errors.UnknownMemberId.code


def test_a_rebalance_cancels_a_sync_that_waits(driver: Driver) -> None:
    driver.join("j1")
    driver.join("j2")
    driver.join("j3", "client-1")
    assert driver.sync("s2", "client-2", 2) is None
    driver.join("j4")
    assert driver.answers["s2"]["error_code"] == errors.RebalanceInProgress.code


def test_a_lost_join_response_is_repeated(driver: Driver) -> None:
    first = driver.join("j1")
    second = driver.join("j1-again", "client-1", protocols=("range",))
    assert first is not None
    assert second is not None
    # Its metadata differs from that of the first request: this is a change and a new generation.
    assert second["generation_id"] == 2


def test_a_follower_that_joins_a_stable_group_unchanged_keeps_its_generation(
    driver: Driver,
) -> None:
    _, follower, generation = two_members(driver)
    member = driver.group.members[follower]
    member.protocols = [("range", b"j9 on range")]
    answer = driver.join("j9", follower)
    assert answer is not None
    assert answer["generation_id"] == generation
    assert state(driver) is GroupState.STABLE


def test_an_old_generation_is_told_so(driver: Driver) -> None:
    leader, _, generation = two_members(driver)
    assert driver.heartbeat(leader, generation - 1) == errors.IllegalGeneration.code
    answer = driver.sync("s9", leader, generation - 1)
    assert answer is not None
    assert answer["error_code"] == errors.IllegalGeneration.code
    assert driver.commit("c", leader, generation - 1, 1) == errors.IllegalGeneration.code


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"session_timeout_ms": 5_999}, errors.InvalidSessionTimeout.code),
        ({"session_timeout_ms": 30 * 60_000 + 1}, errors.InvalidSessionTimeout.code),
        ({"member_id": "from-another-life"}, errors.UnknownMemberId.code),
        ({"protocols": ()}, errors.InconsistentGroupProtocol.code),
        ({"protocol_type": ""}, errors.InconsistentGroupProtocol.code),
    ],
)
def test_a_join_that_cannot_be_is_refused(
    driver: Driver, more: dict[str, object], code: int
) -> None:
    answer = driver.join("j1", **more)  # type: ignore[arg-type]
    assert answer is not None
    assert answer["error_code"] == code


def test_a_full_group_takes_nobody() -> None:
    driver = Driver(size_max=1)
    driver.join("j1")
    answer = driver.join("j2")
    assert answer is not None
    assert answer["error_code"] == errors.GroupMaxSizeReached.code


def test_a_static_member_returns_to_its_place_without_a_rebalance(driver: Driver) -> None:
    first = driver.join("j1", instance_id="a")
    assert first is not None
    old_id = first["member_id"]
    driver.sync("s1", old_id, 1, **{old_id.replace("-", "_"): "mine"})
    group = driver.group
    group.members[old_id].protocols = [("range", b"j2 on range")]
    second = driver.join("j2", instance_id="a", supports_skipping_assignment=True)
    assert second is not None
    new_id = second["member_id"]
    assert new_id != old_id
    assert second["generation_id"] == 1
    assert second["skip_assignment"]
    synced = driver.sync("s2", new_id, 1)
    assert synced is not None
    assert synced["assignment"] == b"mine"
    # The old member id is fenced.
    assert driver.heartbeat(old_id, 1, "a") == errors.FencedInstanceId.code
    code = driver.commit("c", old_id, 1, 5, instance_id="a")
    assert code == errors.FencedInstanceId.code


def test_a_static_member_can_be_removed_by_its_instance_id(driver: Driver) -> None:
    driver.join("j1", instance_id="a")
    assert driver.leave("", "a") == 0
    assert state(driver) is GroupState.EMPTY


def test_a_static_member_keeps_its_place_while_it_is_away(driver: Driver) -> None:
    first = driver.join("j1", instance_id="a", session_timeout_ms=120_000)
    assert first is not None
    driver.sync("s1", first["member_id"], 1)
    driver.join("j2")
    driver.advance(60_000)
    assert driver.answers["j2"]["generation_id"] == 2
    assert first["member_id"] in driver.group.members


def test_an_assignment_that_cannot_be_stored_is_given_to_nobody(driver: Driver) -> None:
    driver.join("j1")
    driver.disk_works = False
    answer = driver.sync("s1", "client-1", 1, client_1="x")
    assert answer is not None
    assert answer["error_code"] != 0
    driver.disk_works = True
    again = driver.join("j2", "client-1")
    assert again is not None
    assert again["generation_id"] == 2


def test_a_restarted_coordinator_knows_members_and_generation(driver: Driver) -> None:
    leader, follower, generation = two_members(driver)
    driver.restart()
    assert state(driver) is GroupState.STABLE
    assert driver.heartbeat(leader, generation) == 0
    answer = driver.sync("s9", follower, generation)
    assert answer is not None
    assert answer["assignment"] == b"two"
    driver.advance(10_000)
    assert follower not in driver.group.members


@pytest.mark.parametrize("seed", range(150))
def test_random_clients_always_converge(seed: int) -> None:
    """Members join, vanish, repeat requests and react late. Every request gets one response, one
    generation has one assignment, and when members behave again the group becomes stable.
    """
    source = random.Random(seed)
    driver = Driver(initial_rebalance_delay_ms=source.choice([0, 500]))
    tokens = iter(range(1_000_000))
    known: dict[str, int] = {}
    waiting: dict[str, str] = {}
    given: dict[tuple[int, str], bytes] = {}

    def collect() -> None:
        for token, kind in list(waiting.items()):
            answer = driver.answers.get(token)
            if answer is None:
                continue
            del waiting[token]
            if kind == "join":
                if answer["error_code"] == 0:
                    known[answer["member_id"]] = answer["generation_id"]
                elif answer["error_code"] == errors.MemberIdRequired.code:
                    known[answer["member_id"]] = -1
                else:
                    known.pop(answer["member_id"], None)
            elif answer["error_code"] == 0:
                place = (known[kind], kind)
                assert given.setdefault(place, answer["assignment"]) == answer["assignment"]

    def join(member_id: str) -> None:
        token = f"j{next(tokens)}"
        waiting[token] = "join"
        driver.join(token, member_id, require_known_member_id=True, protocols=("range", "x"))

    def sync(member_id: str) -> None:
        token = f"s{next(tokens)}"
        waiting[token] = member_id
        group = driver.group
        names = {each.replace("-", "_"): f"{each}@{group.generation}" for each in group.members}
        driver.sync(token, member_id, known[member_id], **names)

    for _ in range(300):
        choice = source.random()
        members = list(known)
        if choice < 0.15 and len(members) < 6:
            join("")
        elif members and choice < 0.35:
            join(source.choice(members))
        elif members and choice < 0.6 and "g" in driver.coordinator.groups:
            sync(source.choice(members))
        elif members and choice < 0.8:
            member_id = source.choice(members)
            code = driver.heartbeat(member_id, known[member_id])
            if code == errors.UnknownMemberId.code:
                del known[member_id]
        elif members and choice < 0.84:
            driver.leave(known.popitem()[0])
        else:
            driver.advance(source.choice([1, 100, 3_000]))
        collect()
        if source.random() < 0.02:
            driver.restart()
            waiting.clear()

    # The remaining members behave: they join until all have one generation, then sync.
    join("")
    for _ in range(40):
        collect()
        for member_id in list(known):
            group = driver.group
            member = group.members.get(member_id)
            if member is None and member_id not in group.roster.pending:
                del known[member_id]
            elif member is None or group.state is GroupState.PREPARING_REBALANCE:
                if member is None or member.join_token is None:
                    join(member_id)
            elif group.state is GroupState.COMPLETING_REBALANCE and member.sync_token is None:
                known[member_id] = group.generation
                sync(member_id)
            elif group.state is GroupState.STABLE:
                driver.heartbeat(member_id, group.generation)
        driver.advance(2_000)
    group = driver.group
    assert group.state is GroupState.STABLE, (seed, group.state, known, waiting)
    assert group.leader in group.members
    assert all(not member.waiting for member in group.members.values())
