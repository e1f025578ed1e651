"""Messages are acknowledged in their order, whatever the order in which the log has them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.mqtt.acknowledgements import OrderedAcknowledgements


@given(st.permutations(range(12)), st.integers(0, 12))
def test_the_order_is_that_of_arrival(order: list[int], stored: int) -> None:
    acknowledged: list[str] = []
    waiting: OrderedAcknowledgements[str] = OrderedAcknowledgements(acknowledged.append)
    numbers = [waiting.add(str(each)) for each in range(12)]
    for each in order[:stored]:
        waiting.stored(numbers[each])
        waiting.stored(numbers[each])
    done = set(order[:stored])
    first_missing = next((each for each in range(12) if each not in done), 12)
    assert acknowledged == [str(each) for each in range(first_missing)]
    assert len(waiting) == 12 - first_missing
