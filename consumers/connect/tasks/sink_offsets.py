"""Which offsets of a sink task may be committed: decided without a clock or a client."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from consumers.connect.plugins.sink_task import TopicPartition

logger = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]


class SinkOffsets:
    """The offsets of the partitions that a task has; each is that of the next record."""

    def __init__(self) -> None:
        #: After the records that the task has been given, and taken.
        self._current: Final[Offsets] = {}
        #: What the group knows; for a partition without a committed offset, where reading began.
        self._committed: Final[Offsets] = {}

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions of which something has been read."""
        return list(self._current)

    def assigned(self, partition: TopicPartition, offset: int) -> None:
        """Take note of where reading a partition begins."""
        self._committed[partition] = self._current[partition] = offset

    def began(self, partition: TopicPartition, offset: int) -> None:
        """Take note of the first record of a partition of which no committed offset is known."""
        self._committed.setdefault(partition, offset)

    def put(self, ends: Mapping[TopicPartition, int]) -> None:
        """Take note that the task has taken the records before these offsets."""
        self._current.update(ends)

    def rewound(self, partition: TopicPartition, offset: int) -> None:
        """Take note that reading goes on at an offset that the task has chosen."""
        self._committed[partition] = self._current[partition] = offset

    def removed(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions."""
        for each in partitions:
            self._current.pop(each, None)
            self._committed.pop(each, None)

    def to_commit(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the offsets after everything that the task has taken."""
        return {each: end for each, end in self._current.items() if each in partitions}

    def accepted(
        self,
        asked: Mapping[TopicPartition, int],
        answered: Mapping[TopicPartition, int],
        assigned: Collection[TopicPartition],
    ) -> Offsets:
        """Return what is to be committed, given the task's answer to `asked`; nothing if that is
        what the group knows already.

        An answer beyond what was put, or for other partitions, has no effect.
        """
        accepted: Offsets = {}
        for partition, offset in answered.items():
            if partition not in asked or partition not in self._committed:
                where = "not assigned" if partition not in assigned else "not requested"
                logger.warning("offset %d of %s is ignored: it is %s", offset, partition, where)
            elif offset > asked[partition]:
                logger.warning(
                    "offset %d of %s is ignored: only those before %d have been put",
                    offset,
                    partition,
                    asked[partition],
                )
            elif offset != self._committed[partition]:
                accepted[partition] = offset
        return accepted

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Take note of what the group knows."""
        self._committed.update(
            {each: offset for each, offset in offsets.items() if each in self._committed}
        )

    def back_to_committed(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return where reading goes on after a commit that failed in the task."""
        back = {each: end for each, end in self._committed.items() if each in partitions}
        self._current.update(back)
        return back
