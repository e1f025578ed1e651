"""A batch is stored but for the items that are refused, whatever these are."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.postgresql.bisection import Refused, store_all_but_refused


@given(st.integers(0, 200), st.sets(st.integers(0, 199), max_size=12), st.sets(st.integers(0, 199)))
def test_all_but_the_bad_items_are_stored_once_and_in_order(
    count: int, bad: set[int], told: set[int]
) -> None:
    stored: list[int] = []
    calls = 0

    def store(items: Sequence[int]) -> None:
        nonlocal calls
        calls += 1
        for position, item in enumerate(items):
            if item in bad:
                raise Refused(ValueError(item), position if item in told else None)
        stored.extend(items)

    refused = store_all_but_refused(range(count), store)
    bad = {item for item in bad if item < count}
    assert stored == [item for item in range(count) if item not in bad]
    assert [each.position for each in refused] == sorted(bad)
    assert [str(each.error) for each in refused] == [str(item) for item in sorted(bad)]
    assert calls <= 1 + len(bad) * 2 * 9
