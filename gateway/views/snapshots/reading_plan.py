"""The parts of the log that a gateway reads when it starts; pure logic.

Records since the snapshot are read before anything is served, if there are not too many. A longer
range is a gap: only its newest part is read at once, the rest in the background.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.views.snapshots.view_snapshot import SavedTopic
from waylog.kafka.ranges.topic_extent import TopicExtent

#: Records of all partitions together that are read in about a second.
BEHIND_MAX: Final = 500_000

OffsetRanges = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class ReadingPlan:
    """The offsets to read, by partition; a range is its first offset and its end (exclusive)."""

    #: Offsets from which records are read, now and live.
    starts: Mapping[int, int]
    #: Older ranges that have not been read.
    gaps: OffsetRanges
    #: Ranges covered by the snapshot that are read again for the tracks.
    recent: OffsetRanges


def fits(saved: SavedTopic, extent: TopicExtent) -> bool:
    """Tell whether a snapshot appears to belong to this topic."""
    return saved.identity == extent.identity and all(
        offset <= extent.end.get(partition, -1) for partition, offset in saved.next.items()
    )


def plan(
    saved: SavedTopic | None, extent: TopicExtent, tail: int, behind_max: int = BEHIND_MAX
) -> ReadingPlan:
    """Plan what to read.

    `tail` is the number of records of each partition that are always read at once, `behind_max`
    that of all partitions together.
    """
    known = {} if saved is None else saved.next
    behind = sum(
        end - max(known.get(partition, 0), extent.first[partition])
        for partition, end in extent.end.items()
    )
    starts: dict[int, int] = {}
    gaps: OffsetRanges = {}
    recent: OffsetRanges = {}
    for partition, end in extent.end.items():
        first = extent.first[partition]
        newest = max(first, end - tail)
        covered = max(first, known.get(partition, first))
        start = covered if behind <= behind_max else max(newest, covered)
        starts[partition] = start
        gap = start if start == covered else covered
        if saved is not None and partition in saved.gaps:
            gap = min(gap, max(first, saved.gaps[partition][0]))
            until = start if start > covered else min(saved.gaps[partition][1], start)
        else:
            until = start
        if gap < until:
            gaps[partition] = (gap, until)
        if newest < start and partition in known:
            recent[partition] = (newest, start)
    return ReadingPlan(starts, gaps, recent)
