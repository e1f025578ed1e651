"""From where a gateway reads the log when it starts: logic alone.

What is new since the snapshot is read before anything is served, as long as that is soon done. A
longer stretch is a gap: only its newest part is read at once, the rest beside everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.views.snapshots.view_snapshot import SavedTopic
from waylog.kafka.topic_extent import TopicExtent

#: Records of all partitions together, which are read in a second.
BEHIND_MAX: Final = 500_000

Stretches = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class ReadingPlan:
    """By partition; stretches are first offset and the one behind the last."""

    #: From here on records are read, and go on being read.
    starts: Mapping[int, int]
    #: What has not been read and is older.
    gaps: Stretches
    #: What the snapshot covers, but not for the tracks.
    recent: Stretches


def fits(saved: SavedTopic, extent: TopicExtent) -> bool:
    """Tell whether a snapshot is of this topic, as far as can be told."""
    return saved.identity == extent.identity and all(
        offset <= extent.end.get(partition, -1) for partition, offset in saved.next.items()
    )


def plan(
    saved: SavedTopic | None, extent: TopicExtent, tail: int, behind_max: int = BEHIND_MAX
) -> ReadingPlan:
    """Plan what is to be read.

    `tail`: records of each partition that are always read at once; `behind_max`: records of all
    together that are.
    """
    known = {} if saved is None else saved.next
    behind = sum(
        end - max(known.get(partition, 0), extent.first[partition])
        for partition, end in extent.end.items()
    )
    starts: dict[int, int] = {}
    gaps: Stretches = {}
    recent: Stretches = {}
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
