"""Records of forwardings: whatever bytes they have, and what is shown of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waylog.forwarding.definition import (
    Forwarding,
    Progress,
    decode_forwarding,
    decode_progress,
    encode,
    parse_key,
    parse_progress_key,
    record_key,
)
from waylog.forwarding.shown import shown, shown_to_administrators
from waylog.kafka.topics import FORWARDING, FORWARDING_PROGRESS, LOCATION
from waylog.malformed import MALFORMED
from waylog.sealing.sealing import is_device, owner_of_record, owners_of_user

ID = "0123456789abcdef"
FORWARDING_VALUE = Forwarding(name="n", kind="webhook", url="https://x", created=1, since=1)


def test_keys_are_read_as_they_are_written() -> None:
    assert parse_key(record_key("anna", ID)) == ("anna", ID)
    assert parse_progress_key(record_key("anna", ID, 3)) == ("anna", ID, 3)


@pytest.mark.parametrize(
    "key", [b"", b"anna", f"\n{ID}".encode(), f"a/b\n{ID}".encode(), b"anna\nxyz", b"\xff\n"]
)
def test_other_keys_are_refused(key: bytes) -> None:
    with pytest.raises(MALFORMED):
        parse_key(key)
    with pytest.raises(MALFORMED):
        parse_progress_key(key + b"\n0")


@given(st.binary())
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for read in (parse_key, parse_progress_key, decode_forwarding, decode_progress):
        try:
            read(data)
        except MALFORMED:
            continue


def test_values_are_read_as_they_are_written() -> None:
    progress = Progress(offset=7, live=True, forwarded=5)
    assert decode_forwarding(encode(FORWARDING_VALUE)) == FORWARDING_VALUE
    assert decode_progress(encode(progress)) == progress
    with pytest.raises(MALFORMED):
        decode_forwarding(encode(FORWARDING_VALUE).replace(b"webhook", b"pigeon!"))


def test_a_forwarding_has_a_key_of_its_users_own() -> None:
    for topic in (FORWARDING, FORWARDING_PROGRESS):
        owner = owner_of_record(topic, record_key("anna", ID))
        assert owner in owners_of_user("anna")
        assert not is_device(owner)
        # What an erasure of one of the user's devices destroys.
        assert owner not in ("anna", owner_of_record(LOCATION, b"anna/phone"))


@pytest.mark.parametrize(
    ("progress", "state"),
    [
        ({}, "new"),
        ({0: Progress(offset=1, live=True), 1: Progress(offset=1, live=True)}, "live"),
        ({0: Progress(offset=1, live=True), 1: Progress(offset=1)}, "behind"),
        ({0: Progress(offset=1, live=True, error="x", error_time=1)}, "failing"),
    ],
    ids=["new", "live", "behind", "failing"],
)
def test_the_state_is_that_of_all_partitions(progress: dict[int, Progress], state: str) -> None:
    assert shown(ID, FORWARDING_VALUE, progress)["state"] == state


def test_the_newest_error_is_shown() -> None:
    progress = {
        0: Progress(offset=1, error="old", error_time=1, refused=2, missed=1),
        1: Progress(offset=1, error="new", error_time=2, refused=3, refusal="no"),
    }
    told = shown(ID, FORWARDING_VALUE, progress)
    assert (told["error"], told["refused"], told["refusal"], told["missed"]) == ("new", 5, "no", 1)


def test_administrators_are_shown_nothing_of_devices_logins_and_answers() -> None:
    progress = {0: Progress(offset=1, error="401 for anna", error_time=1, refusal="no device")}
    found = shown_to_administrators("anna", shown(ID, FORWARDING_VALUE, progress))
    assert found.keys() == {
        *("user", "id", "name", "kind", "url", "created", "paused_by", "paused_by_administrator"),
        *("state", "forwarded", "refused", "missed"),
    }
