"""What all parts of the controller share: the image that it writes ahead of its commit."""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.cluster.image import ClusterImage
from broker_core.cluster.records import MetadataRecord, encode_records

#: An entry with more records than this becomes several where they need not take effect together.
_RECORDS_MAX = 1000


class MetadataWriter:
    """Applies records at once, and keeps the entries that the quorum has to commit.

    What the controller decides next builds on what it has decided before, committed or not: an
    active controller's log is the truth, or it is active no longer.
    """

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self._entries: list[bytes] = []

    def write(self, records: Iterable[MetadataRecord]) -> None:
        """Records that take effect together."""
        batch = list(records)
        if batch:
            self.image.apply(self.image.offset, batch)
            self._entries.append(encode_records(batch))

    def write_each(self, records: Iterable[MetadataRecord]) -> None:
        """Records that may take effect one after the other."""
        batch: list[MetadataRecord] = []
        for record in list(records):
            batch.append(record)
            if len(batch) == _RECORDS_MAX:
                self.write(batch)
                batch = []
        self.write(batch)

    def take_entries(self) -> list[bytes]:
        """The entries to append to the log, once."""
        entries, self._entries = self._entries, []
        return entries
