"""Records of the same key stay in order, in batches of the same target."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.http.lanes import batches_of, lanes_of
from tests.consumers.connect.sink_harness import record

_KEYS = st.lists(st.one_of(st.none(), st.sampled_from("abcdefgh"), st.just(b"b")), max_size=60)


@given(_KEYS, st.integers(1, 8))
def test_a_key_has_one_lane_and_keeps_its_order(keys: list[str | None], lanes: int) -> None:
    records = [record(number, key=key) for number, key in enumerate(keys)]
    divided = lanes_of(records, lanes)
    assert sorted(each.value for lane in divided for each in lane) == list(range(len(keys)))
    assert len(divided) <= lanes
    for key in {key for key in keys if key is not None}:
        holding = [lane for lane in divided if any(each.key == key for each in lane)]
        assert len(holding) == 1
    for lane in divided:
        values = [each.value for each in lane]
        assert values == sorted(values)


@given(_KEYS, st.integers(1, 5))
def test_a_batch_has_one_target(keys: list[str | None], size: int) -> None:
    records = [record(number, key=key) for number, key in enumerate(keys)]
    batches = list(batches_of(records, size, lambda each: each.key))
    assert [each for batch in batches for each in batch] == records
    assert all(0 < len(batch) <= size for batch in batches)
    assert all(len({each.key for each in batch}) == 1 for batch in batches)


def test_lanes_are_the_same_in_every_process() -> None:
    keys = ["anna/phone", "bert/bike", "cleo/cat", "dora/dog"]
    lanes = lanes_of([record(key, key=key) for key in keys], 4)
    assert [[each.value for each in lane] for lane in lanes] == [
        ["dora/dog"],
        ["anna/phone"],
        ["bert/bike", "cleo/cat"],
    ]
