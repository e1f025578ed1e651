"""The ids of fixes, taken from records of the log."""

from __future__ import annotations

import pytest

from gateway.fixes.device_times import DeviceTimes
from gateway.fixes.known_fixes import KnownFixes, device_key, fix_key
from gateway.fixes.stored_keys import StoredKeys
from gateway.views.snapshots.key_view import KeyView
from tests.gateway.records import NOW, StoredRecord, fix
from waylog.history.erasures import Erasures
from waylog.messages import encode

#: As the gateway writes it, and as other programs may write it.
VALUES = (
    encode(fix("ada/phone", NOW, id="a")),
    b' {"time": %d, "id": "a", "received": %d, "lat": 1, "lon": 2, "device": "x"}' % (NOW, NOW),
    b'{"id": "\\u0061", "time": %d, "received": %d, "lat": 1, "lon": 2}' % (NOW, NOW),
)
DAMAGED = (
    StoredRecord(b"ada/phone", b"[" * 5000),
    StoredRecord(b"ada/phone", b"{}"),
    StoredRecord(b"ada/phone", None),
    StoredRecord(b"\xff", VALUES[1]),
    StoredRecord(None, VALUES[0]),
    StoredRecord(b"ada/phone", b'{"id": "c", "time": %d, "received": %d}' % (2**63, NOW)),
)


def keeping() -> KeyView:
    known = KnownFixes()
    known.keep(StoredKeys(), DeviceTimes())
    return KeyView(known)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("recent", [True, False])
def test_a_fix_is_known_by_the_device_of_the_key_and_by_its_id(value: bytes, recent: bool) -> None:
    view, positions = keeping(), {}
    records = [*DAMAGED, StoredRecord(b"ada/phone", value, 41, 3)]
    if recent:
        view.on_records(records)
        positions = view.positions
    else:
        view.on_old_records(records, Erasures(), positions, recent=False)
    assert positions == {0: 1, 3: 42}
    # The count decides when a snapshot is due; the reading of a gap reports progress itself.
    assert view.records == (len(records) if recent else 0)
    known = view.known_fixes
    # Ids of old fixes take no memory.
    assert len(known) == recent
    assert (fix_key("ada/phone", "a") in known) == recent
    assert known.take_unsaved() == (fix_key("ada/phone", "a") % 2**64).to_bytes(8, "little")
    assert known.times is not None
    assert known.times.time_of(device_key("ada/phone")) == NOW
    assert view.unreadable == len(DAMAGED)
    # No data of devices is kept.
    assert not view.newest
