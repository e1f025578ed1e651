"""Live viewers: what each gets, and what happens to slow ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import viewers as module
from gateway.auth import Identity
from gateway.friend_filter import FriendFilter
from gateway.metrics import GatewayMetrics
from gateway.permissions import Permissions
from gateway.places import Places
from gateway.telling import Telling
from gateway.users import UserStore
from gateway.viewers import (
    BadCursor,
    BoundingBox,
    Cursor,
    Filter,
    TooManyViewers,
    Viewer,
    Viewers,
    decode_cursor,
    encode_cursor,
)
from gateway.views import ViewEvent

TELLING = Telling(FriendFilter(Places(None), b"secret"))
ADA = Identity("ada")
ADMIN = Identity("root", admin=True)


def viewer_of(
    identity: Identity = ADMIN, wanted: Filter | None = None, positions: Cursor | None = None
) -> Viewer:
    return Viewer(wanted or Filter(), positions or {}, identity, TELLING)


def event(device: str = "ada/phone", offset: int = 0, **members: object) -> ViewEvent:
    made = ViewEvent("location", 0, offset, device, 47.1, 9.5, b"{}")
    return made._replace(**members)  # type: ignore[arg-type]


def test_a_user_sees_own_devices_and_an_admin_all() -> None:
    events = [event("ada/phone"), event("adam/phone"), event("eve/phone")]
    assert [e.device for e in viewer_of(ADA).shown(events)] == ["ada/phone"]
    assert len(viewer_of(ADMIN).shown(events)) == 3


def test_filters_narrow_by_device_topic_and_box() -> None:
    for wanted, shown in (
        (Filter(devices=frozenset(["ada/bike"])), False),
        (Filter(topics=frozenset(["address"])), False),
        (Filter(box=BoundingBox(9, 47, 10, 48)), True),
        (Filter(box=BoundingBox(9, 46, 10, 47)), False),
    ):
        assert bool(viewer_of(ADA, wanted).shown([event()])) == shown


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
    viewer = viewer_of()
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
    viewer = viewer_of()
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


async def test_the_number_of_viewers_is_bounded(tmp_path: Path) -> None:
    permissions = Permissions(UserStore(tmp_path / "users.db"))
    viewers = Viewers((), GatewayMetrics(), permissions, TELLING, viewers_max=2)
    assert not viewers.watching
    first = viewers.add(Filter(), ADA)
    viewers.add(Filter(), ADA)
    with pytest.raises(TooManyViewers):
        viewers.add(Filter(), ADA)
    viewers.remove(first)
    viewers.add(Filter(), ADA)
    assert viewers.watching


async def test_the_id_of_an_event_tells_where_to_go_on() -> None:
    viewer = viewer_of(positions={("location", 0): 5, ("location", 1): 7})
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
