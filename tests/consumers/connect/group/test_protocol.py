"""The bytes of the group, compared with those that Kafka's schemas describe (KIP-415)."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.group.protocol import (
    Assignment,
    MalformedBytes,
    Metadata,
    decode_assignment,
    decode_metadata,
    encode_assignment,
    encode_metadata,
    protocols,
)
from consumers.connect.group.work import Work
from consumers.connect.storage.states import TaskId

WORK = Work.of(("a", "b"), (TaskId("a", 0), TaskId("a", 1), TaskId("c", 7)))
NAMES = st.text(min_size=1, max_size=8)
WORKS = st.builds(
    Work.of,
    st.sets(NAMES, max_size=4),
    st.sets(st.builds(TaskId, NAMES, st.integers(0, 2**31 - 1)), max_size=6),
)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def test_an_assignment_has_the_bytes_of_kafka() -> None:
    assignment = Assignment(0, "leader-1", "http://h:1/", 42, Work.of(("a",), (TaskId("a", 3),)))
    assert encode_assignment(assignment, 2) == b"".join(
        (
            struct.pack(">hh", 2, 0),
            text("leader-1"),
            text("http://h:1/"),
            struct.pack(">q", 42),
            struct.pack(">i", 1) + text("a") + struct.pack(">iii", 2, -1, 3),
            struct.pack(">i", 0),
            struct.pack(">i", 0),
        )
    )


def test_a_worker_without_work_joins_without_an_assignment() -> None:
    data = encode_metadata(Metadata("http://h:1/", 5, None), 1)
    assert data == struct.pack(">h", 1) + text("http://h:1/") + struct.pack(">qi", 5, -1)
    assert decode_metadata(data).work.is_empty


def test_lists_that_are_null_or_missing_are_empty() -> None:
    head = struct.pack(">hh", 1, 0) + text("l") + text("u") + struct.pack(">q", 1)
    for data in (head, head + struct.pack(">ii", -1, -1), head + struct.pack(">iii", -1, -1, 0)):
        assert decode_assignment(data) == Assignment(0, "l", "u", 1)


@given(WORKS, WORKS, st.integers(0, 2**31 - 1), st.sampled_from((1, 2)))
def test_what_is_written_is_read(work: Work, revoked: Work, delay_ms: int, version: int) -> None:
    assignment = Assignment(1, "l", "u", 9, work, revoked, delay_ms)
    assert decode_assignment(encode_assignment(assignment, version)) == assignment
    metadata = Metadata("http://h:1/", 7, assignment)
    assert decode_metadata(encode_metadata(metadata, version)) == metadata


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_metadata, decode_assignment):
        try:
            decode(data)
        except MalformedBytes:
            continue


@pytest.mark.parametrize("end", range(1, 40))
def test_bytes_that_end_too_early_are_refused_or_shorter(end: int) -> None:
    data = encode_assignment(Assignment(0, "leader", "http://h:1/", 42, WORK), 2)
    with contextlib.suppress(MalformedBytes):
        assert decode_assignment(data[:end]).work in (Work(), WORK)


def test_a_long_count_makes_no_long_list() -> None:
    head = struct.pack(">hh", 1, 0) + text("l") + text("u") + struct.pack(">q", 1)
    with pytest.raises(MalformedBytes, match="longer than its bytes"):
        decode_assignment(head + struct.pack(">i", 2**31 - 1))


def test_eager_workers_say_no_work_and_are_assigned_all_of_it() -> None:
    metadata = Metadata("http://h:1/", 5, Assignment(0, "l", "u", 1, WORK))
    data = encode_metadata(metadata, 0)
    assert data == struct.pack(">h", 0) + text("http://h:1/") + struct.pack(">q", 5)
    assert decode_metadata(data) == Metadata("http://h:1/", 5, None)
    assignment = Assignment(0, "leader-1", "http://h:1/", 42, Work.of(("a",), (TaskId("a", 3),)))
    data = encode_assignment(assignment._replace(delay_ms=7, revoked=WORK), 0)
    assert data == b"".join(
        (
            struct.pack(">hh", 0, 0),
            text("leader-1"),
            text("http://h:1/"),
            struct.pack(">q", 42),
            struct.pack(">i", 1) + text("a") + struct.pack(">iii", 2, -1, 3),
        )
    )
    assert decode_assignment(data) == assignment


def test_workers_offer_the_older_protocols_too() -> None:
    metadata = Metadata("http://h:1/", 5, None)
    assert [name for name, _ in protocols(metadata, "sessioned")] == [
        *("sessioned", "compatible", "default"),
    ]
    assert [name for name, _ in protocols(metadata, "compatible")] == ["compatible", "default"]
    assert [name for name, _ in protocols(metadata, "default")] == ["default"]
