"""Truncation of a log's end, as a follower needs it when its log diverges from the leader's.

The order of the steps allows a crash at any moment. The recovery point is lowered first, so that
what is rewritten is read again after a crash. Segments are removed from the last to the first, so
that what remains is always a prefix of the old log.
"""

from __future__ import annotations

from pathlib import Path

from broker_core.environment import Disk
from broker_core.log import producer_state
from broker_core.log.producer_state import ProducerState
from broker_core.log.recovery import offsets_of
from broker_core.log.scanning import Scan
from broker_core.log.segment import Segment
from broker_core.protocol.control_records import read_end_marker


def cut_segments(
    disk: Disk, directory: Path, segments: list[Segment], offset: int
) -> list[Segment]:
    """Remove every batch that reaches `offset`, durably. Raises OSError.

    The first segment stays, even if it is empty; the last one that stays can be written.
    """
    kept = list(segments)
    while len(kept) > 1 and kept[-1].base_offset >= offset:
        kept.pop().remove()
    kept[-1].cut(offset)
    disk.fsync_directory(directory)
    return kept


def reload_producers(
    disk: Disk, directory: Path, segments: list[Segment], now_ms: int
) -> ProducerState:
    """Rebuild producer state from the segments and the newest snapshot that is still valid.

    Later snapshots are removed. Raises OSError.
    """
    end_offset = segments[-1].next_offset
    snapshots = offsets_of(disk.names(directory), producer_state.SUFFIX)
    for offset in snapshots:
        if offset > end_offset:
            disk.remove(producer_state.snapshot_path(directory, offset))
    found = producer_state.load_snapshot(disk, directory, snapshots, end_offset)
    offset, producers = found or (segments[0].base_offset, ProducerState())
    for segment in segments:
        if segment.next_offset <= offset:
            continue
        for header, _, data in Scan(disk.open(segment.path), segment.size, check_crc=False):
            if header.base_offset < offset or header.producer_id < 0:
                continue
            # The transaction index is correct already: only producer state is rebuilt.
            if not header.is_control:
                producers.update(header, now_ms)
            elif (marker := read_end_marker(data, header)) is not None:
                producers.end_transaction(header, marker, now_ms)
    return producers
