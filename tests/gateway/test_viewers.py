"""Live viewers: what each gets, and what happens to slow ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import viewers as module
from gateway.metrics import GatewayMetrics
from gateway.viewers import (
    BadCursor,
    BoundingBox,
    Filter,
    TooManyViewers,
    Viewer,
    Viewers,
    decode_cursor,
    encode_cursor,
)
from gateway.views import ViewEvent

ADA = frozenset(("ada",))


def event(device: str = "ada/phone", offset: int = 0, **members: object) -> ViewEvent:
    made = ViewEvent("location", 0, offset, device, 47.1, 9.5, b"{}")
    return made._replace(**members)  # type: ignore[arg-type]


def test_a_user_sees_own_devices_and_an_admin_all() -> None:
    events = [event("ada/phone"), event("adam/phone"), event("eve/phone")]
    assert [e.device for e in events if Filter(ADA).passes(e)] == ["ada/phone"]
    assert len([e for e in events if Filter(None).passes(e)]) == 3


def test_filters_narrow_by_device_topic_and_box() -> None:
    assert not Filter(ADA, devices=frozenset(["ada/bike"])).passes(event())
    assert not Filter(ADA, topics=frozenset(["address"])).passes(event())
    assert Filter(ADA, box=BoundingBox(9, 47, 10, 48)).passes(event())
    assert not Filter(ADA, box=BoundingBox(9, 46, 10, 47)).passes(event())


def test_a_box_may_span_the_antimeridian() -> None:
    fiji = BoundingBox.of([177, -20, -178, -15])
    assert fiji.contains(-17, 178)
    assert fiji.contains(-17, -179)
    assert not fiji.contains(-17, 0)


@pytest.mark.parametrize("numbers", [[1, 2, 3], [0, 10, 1, 5], [0, -91, 1, 5], [200, 0, 1, 1]])
def test_boxes_that_are_none_are_refused(numbers: list[float]) -> None:
    with pytest.raises(ValueError):
        BoundingBox.of(numbers)


async def test_events_wait_in_order() -> None:
    viewer = Viewer(Filter(None), {})
    viewer.offer([event(offset=n) for n in range(5)])
    assert viewer.wake.is_set()
    assert [each.offset for each in viewer.take()] == [0, 1, 2, 3, 4]
    assert not viewer.wake.is_set()
    assert viewer.take() == []


async def test_a_slow_viewer_gets_the_newest_of_each_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ORDERED_EVENTS_MAX", 10)
    monkeypatch.setattr(module, "NEWEST_EVENTS_MAX", 4)
    viewer = Viewer(Filter(None), {})
    for offset in range(300):
        viewer.offer([event(f"ada/{offset % 3}", offset)])
    taken = viewer.take()
    assert [each.offset for each in taken] == [297, 298, 299]
    assert viewer.take_skipped() == 297
    for offset in range(300):
        viewer.offer([event(f"ada/{offset}", offset)])
    assert [each.offset for each in viewer.take()] == [296, 297, 298, 299]
    viewer.offer([event(offset=1000)])
    assert [each.offset for each in viewer.take()] == [1000]


async def test_the_number_of_viewers_is_bounded() -> None:
    viewers = Viewers((), GatewayMetrics(), viewers_max=2)
    assert not viewers.watching
    first = viewers.add(Filter(None))
    viewers.add(Filter(None))
    with pytest.raises(TooManyViewers):
        viewers.add(Filter(None))
    viewers.remove(first)
    viewers.add(Filter(None))
    assert viewers.watching


async def test_the_id_of_an_event_tells_where_to_go_on() -> None:
    viewer = Viewer(Filter(None), {("location", 0): 5, ("location", 1): 7})
    assert viewer.advance(event(offset=6)) == "l0-7.l1-7"
    assert viewer.advance(event(offset=2, topic="address", partition=3)) == "l0-7.l1-7.a3-3"
    # Coalescing may give an older event after a newer one: the id does not go back.
    assert viewer.advance(event(offset=5)) == "l0-7.l1-7.a3-3"


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["location", "address"]), st.integers(0, 10_000)),
        st.integers(0, 10**17),
        max_size=20,
    )
)
def test_cursors_survive_being_written(cursor: dict[tuple[str, int], int]) -> None:
    assert decode_cursor(encode_cursor(cursor)) == cursor


@pytest.mark.parametrize(
    "text", ["x", "l0", "l0-", "b0-1", "l0-1.", "l0-1,a0-1", "l0--1", "l" * 99]
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(BadCursor):
        decode_cursor(text)
