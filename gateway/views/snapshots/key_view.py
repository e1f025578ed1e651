"""A view that keeps only the ids of fixes, for processes that serve no readers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gateway.fixes.known_fixes import KnownFixes, device_key, fix_key
from gateway.views.fix_view import take_keys
from gateway.views.view import Record, View
from waylog.history.erasures import Erasures
from waylog.kafka.topics import LOCATION
from waylog.malformed import MALFORMED


class _Identity(msgspec.Struct, gc=False):
    id: str
    time: int
    received: int


_identity = msgspec.json.Decoder(_Identity)


class KeyView(View):
    """Feeds `known_fixes` from topic `location`; keeps no newest value of a device."""

    def __init__(self, known_fixes: KnownFixes) -> None:
        super().__init__(LOCATION, 0)
        self.known_fixes = known_fixes
        # The snapshot has no times of devices, so the next process looks up every fix on disk.
        self.evicted = True

    def on_records(self, records: Sequence[Record]) -> None:
        """Take records of topic `location`; the callback of BatchReader."""
        take_keys(self, records, self.known_fixes, self.positions)
        self._counted(records)

    def on_old_records(
        self,
        records: Sequence[Record],
        erasures: Erasures,
        positions: dict[int, int],
        *,
        recent: bool,
    ) -> None:
        """Take records older than those of `on_records`; `positions` are their next offsets.

        Records of erased devices are taken too: their ids are in the log, and nothing else is kept.
        """
        take_keys(self, records, self.known_fixes, positions, recent=recent)

    def take_record(self, record: Record, *, recent: bool) -> None:
        """Take one record that is not in the form that the gateway writes."""
        key, value = record.key(), record.value()
        try:
            if key is None or value is None:
                raise ValueError("no key or no value")
            device, head = key.decode(), _identity.decode(value)
            if self.known_fixes.times is not None:
                self.known_fixes.times.add(device_key(device), head.time, head.received)
        except (*MALFORMED, OverflowError):
            self._unreadable(record)
            return
        known = fix_key(device, head.id)
        if recent:
            self.known_fixes.add(known)
        else:
            self.known_fixes.add_old(known)

    def forget(self, device: str, erased_ms: int) -> None:
        """Do nothing: no device is known here."""

    def reset(self) -> None:
        """Do nothing: no device is known here."""
