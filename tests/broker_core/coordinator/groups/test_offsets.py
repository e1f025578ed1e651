"""Committed offsets: permission to commit, storage, expiry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core import errors
from broker_core.coordinator.offsets import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from broker_core.protocol.errors import RemoteProtocolError
from tests.broker_core.coordinator.groups.driver import Driver

_DAY_MS = 24 * 60 * 60_000


@pytest.fixture
def driver() -> Driver:
    """A coordinator without groups."""
    return Driver()


def test_the_records_have_kafkas_own_format() -> None:
    # Written by hand after the input of kafka-dump-log --offsets-decoder: version, then the fields.
    assert encode_offset_key("g", "t", 3) == b"\0\1\0\1g\0\1t\0\0\0\3"
    assert encode_group_key("g") == b"\0\2\0\1g"
    value = encode_offset_value(CommittedOffset(7, 0, "m", 5))
    assert value == (
        b"\0\3" + (7).to_bytes(8, "big") + bytes(4) + b"\0\1m" + (5).to_bytes(8, "big")
    )


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, 2**31 - 1))
def test_keys_come_back(group_id: str, topic: str, partition: int) -> None:
    key = encode_offset_key(group_id, topic, partition)
    assert decode_key(key) == OffsetKey(group_id, topic, partition)
    assert decode_key(encode_group_key(group_id)) == GroupKey(group_id)


@given(st.binary(max_size=60))
def test_damaged_records_are_refused_not_believed(data: bytes) -> None:
    for decode in (decode_key, decode_offset_value, decode_group_value):
        try:
            decode(data)
        except RemoteProtocolError:
            continue


def test_keys_of_later_kinds_are_left_alone() -> None:
    assert decode_key(b"\0\3\0\1g") is None


def test_group_metadata_comes_back() -> None:
    fields = {
        "protocol_type": "consumer",
        "generation": 4,
        "protocol": "range",
        "leader": "m",
        "current_state_timestamp": 9,
        "members": [
            {
                "member_id": "m",
                "group_instance_id": None,
                "client_id": "c",
                "client_host": "/h",
                "rebalance_timeout": 1,
                "session_timeout": 2,
                "subscription": b"s",
                "assignment": b"a",
            }
        ],
    }
    assert decode_group_value(encode_group_value(fields)) == fields


def test_a_consumer_outside_of_any_group_commits(driver: Driver) -> None:
    assert driver.commit("c1", "", -1, 5) == 0
    assert driver.committed() == 5
    assert driver.commit("c2", "", -1, 6) == 0
    assert driver.committed() == 6


def test_a_commit_with_a_generation_needs_the_group(driver: Driver) -> None:
    assert driver.commit("c1", "somebody", 3, 5) == errors.IllegalGeneration.code


def test_a_stranger_does_not_commit_into_a_group_with_members(driver: Driver) -> None:
    driver.join("j1")
    assert driver.commit("c1", "", -1, 5) == errors.UnknownMemberId.code
    assert driver.commit("c2", "client-1", 1, 5) == errors.RebalanceInProgress.code
    driver.sync("s1", "client-1", 1)
    assert driver.commit("c3", "client-1", 1, 5) == 0


def test_a_commit_keeps_its_member_alive(driver: Driver) -> None:
    driver.join("j1")
    driver.sync("s1", "client-1", 1)
    for i in range(5):
        driver.advance(9_000)
        assert driver.commit(f"c{i}", "client-1", 1, i) == 0


def test_metadata_that_is_too_large_is_refused(driver: Driver) -> None:
    code = driver.commit("c1", "", -1, 5, metadata="x" * 4097)
    assert code == errors.OffsetMetadataTooLarge.code
    assert driver.committed() is None


def test_an_offset_that_could_not_be_stored_is_not_committed(driver: Driver) -> None:
    driver.commit("c1", "", -1, 5)
    driver.disk_works = False
    assert driver.commit("c2", "", -1, 6) == errors.CoordinatorNotAvailable.code
    assert driver.committed() == 5


def test_offsets_survive_a_restart(driver: Driver) -> None:
    driver.commit("c1", "", -1, 5)
    driver.commit("c2", "", -1, 6)
    driver.restart()
    assert driver.committed() == 6


def test_a_deleted_group_is_gone_after_a_restart_too(driver: Driver) -> None:
    driver.commit("c1", "", -1, 5)
    driver.coordinator.delete_group("g", "d1")
    driver.perform()
    assert driver.answers["d1"]["error_code"] == errors.NONE
    driver.restart()
    assert driver.coordinator.groups == {}
    driver.coordinator.delete_group("g", "d2")
    driver.perform()
    assert driver.answers["d2"]["error_code"] == errors.GroupIdNotFound.code


def test_a_group_with_members_is_not_deleted(driver: Driver) -> None:
    driver.join("j1")
    driver.coordinator.delete_group("g", "d1")
    driver.coordinator.delete_offsets("g", [("t", 0)], "d2")
    driver.perform()
    assert driver.answers["d1"]["error_code"] == errors.NonEmptyGroup.code
    # These bytes do not tell its member's topics, so it might subscribe to any topic.
    assert driver.answers["d2"]["codes"] == {("t", 0): errors.GroupSubscribedToTopic.code}


def test_single_offsets_are_deleted(driver: Driver) -> None:
    driver.commit("c1", "", -1, 5)
    driver.coordinator.delete_offsets("g", [("t", 0), ("t", 1)], "d1")
    driver.perform()
    assert driver.answers["d1"] == {"error_code": 0, "codes": {("t", 0): 0, ("t", 1): 0}}
    driver.restart()
    assert driver.committed() is None


def test_a_deletion_that_is_not_stored_is_refused_as_a_whole(driver: Driver) -> None:
    driver.commit("c1", "", -1, 5)
    driver.disk_works = False
    driver.coordinator.delete_offsets("g", [("t", 0)], "d1")
    driver.perform()
    code = errors.CoordinatorNotAvailable.code
    assert driver.answers["d1"] == {"error_code": code, "codes": {("t", 0): code}}


def test_offsets_of_a_deleted_topic_are_forgotten(driver: Driver) -> None:
    driver.commit("c1", "", -1, 5)
    driver.coordinator.forget_topic("t")
    driver.perform()
    driver.restart()
    assert driver.committed() is None


def test_offsets_expire_a_week_after_nobody_needs_them(driver: Driver) -> None:
    driver.commit("c1", "", -1, 5, group_id="simple")
    driver.join("j1")
    driver.sync("s1", "client-1", 1)
    driver.commit("c2", "client-1", 1, 5)
    driver.wait_without_heartbeats(8 * _DAY_MS)
    driver.coordinator.expire_offsets(driver.now)
    driver.perform()
    assert driver.committed("simple") is None
    # The group has had a member all the time.
    assert driver.committed() == 5
    driver.leave("client-1")
    driver.coordinator.expire_offsets(driver.now)
    driver.perform()
    assert driver.committed() == 5
    driver.wait_without_heartbeats(7 * _DAY_MS)
    driver.coordinator.expire_offsets(driver.now)
    driver.perform()
    assert driver.coordinator.groups == {}
    driver.restart()
    assert driver.coordinator.groups == {}
