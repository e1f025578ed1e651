"""A view of the ids of the log's fixes, and nothing else: for processes that answer nobody."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gateway.fixes.known_fixes import KnownFixes, device_key, fix_key
from gateway.views.fix_view import take_keys
from gateway.views.views import Record, View
from waylog.history.erasures import Erasures
from waylog.kafka.topics import LOCATION


class _Identity(msgspec.Struct, gc=False):
    id: str
    time: int
    received: int


_identity = msgspec.json.Decoder(_Identity)


class KeyView(View):
    """Feeds `known_fixes` from topic `location`; no device has a newest value here."""

    def __init__(self, known_fixes: KnownFixes) -> None:
        super().__init__(LOCATION, 0)
        self.known_fixes = known_fixes
        # The next process cannot know the time of any device, and asks the disk of each fix.
        self.evicted = True

    def on_records(self, records: Sequence[Record]) -> None:
        """Take records of topic `location`; for LogReader."""
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
        """Take records from before those of `on_records`; `positions` are theirs.

        Those of `erasures` too: they are in the log, and say nothing of anybody here.
        """
        take_keys(self, records, self.known_fixes, positions, recent=recent)

    def take_record(self, record: Record, *, recent: bool) -> None:
        """Take one record that is not as our own gateway writes nearly all of them."""
        key, value = record.key(), record.value()
        try:
            if key is None or value is None:
                raise ValueError("no key or no value")
            device, head = key.decode(), _identity.decode(value)
        except (ValueError, RecursionError, msgspec.DecodeError):
            self._unreadable(record)
            return
        known = fix_key(device, head.id)
        if recent:
            self.known_fixes.add(known)
        else:
            self.known_fixes.add_old(known)
        if self.known_fixes.times is not None:
            self.known_fixes.times.add(device_key(device), head.time, head.received)

    def forget(self, device: str, erased_ms: int) -> None:
        """Nothing is known of any device."""

    def reset(self) -> None:
        """Nothing is known of any device."""
