"""The writer that the controller's parts share; it applies records before they are committed."""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.cluster.image import ClusterImage
from broker_core.cluster.records import MetadataRecord, encode_records

#: Most records of an entry, if the records need not take effect together.
_RECORDS_MAX = 1000


class MetadataWriter:
    """Applies records at once, and keeps the entries that the quorum has to commit.

    Each decision of the controller builds on its earlier ones, committed or not: if those are not
    committed, this controller is not active any more.
    """

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self._entries: list[bytes] = []

    def write(self, records: Iterable[MetadataRecord]) -> None:
        """Write records that take effect together."""
        batch = list(records)
        if batch:
            self.image.apply(self.image.offset, batch)
            self._entries.append(encode_records(batch))

    def write_each(self, records: Iterable[MetadataRecord]) -> None:
        """Write records that may take effect one after the other."""
        batch: list[MetadataRecord] = []
        for record in list(records):
            batch.append(record)
            if len(batch) == _RECORDS_MAX:
                self.write(batch)
                batch = []
        self.write(batch)

    def take_entries(self) -> list[bytes]:
        """Return and clear the entries to append to the log."""
        entries, self._entries = self._entries, []
        return entries
