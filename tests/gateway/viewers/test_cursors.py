"""Event ids: the encrypted cursors of viewers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.viewers.cursors import BadCursor, CursorSeal, decode_cursor, encode_cursor

SEAL = CursorSeal(b"k" * 32)


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["location", "address"]), st.integers(0, 10_000)),
        st.integers(0, 10**17),
        max_size=20,
    )
)
def test_cursors_survive_being_written(cursor: dict[tuple[str, int], int]) -> None:
    assert decode_cursor(encode_cursor(cursor)) == cursor
    sealed = SEAL.seal(encode_cursor(cursor))
    assert SEAL.open(sealed) == cursor
    assert not any(character in sealed for character in '\r\n\0"\\ ')


def test_an_id_of_before_they_were_sealed_is_still_good() -> None:
    assert SEAL.open("l0-17.a3-4") == {("location", 0): 17, ("address", 3): 4}


def test_of_a_sealed_cursor_nothing_can_be_told() -> None:
    low, high = SEAL.seal("l0-9.a0-9"), SEAL.seal("l0-123456789.a0-99999")
    assert len(low) == len(high)
    assert SEAL.seal("l0-9.a0-9") != low


def test_a_cursor_has_as_many_parts_as_any_log_of_ours_and_no_more() -> None:
    most = {("location", number): 10**17 for number in range(2_000)}
    assert SEAL.open(SEAL.seal(encode_cursor(most))) == most
    with pytest.raises(BadCursor):
        SEAL.open(encode_cursor(most | {("address", 0): 1}))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "x",
            "l0",
            "l0-",
            "b0-1",
            "l0-1.",
            "l0-1,a0-1",
            "l0--1",
            "l" * 99,
            "A" * 160,
            "ü",
            "=" * 9,
        ),
        CursorSeal(b"x" * 32).seal("l0-1"),
        SEAL.seal("l0-1")[:-8],
        SEAL.seal("nothing"),
        " ".join(SEAL.seal("l0-1")),
        "l0-1234567890123456789",
        "l1234567890-1",
    ],
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(BadCursor):
        SEAL.open(text)


def test_a_refusal_repeats_little_of_what_was_sent() -> None:
    with pytest.raises(BadCursor) as refused:
        SEAL.open("x" * 10_000)
    assert len(str(refused.value)) < 200
