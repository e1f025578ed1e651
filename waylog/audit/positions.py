"""Positions of the readers of topic `location`: how far each has come."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from waylog.audit.evidence import CONNECTOR_GROUP, HISTORY
from waylog.audit.facts import Reader, ReaderKind
from waylog.audit.history_rows import HistoryPosition, HistoryRows
from waylog.audit.log_reader import GROUPS_MAX, LogReader
from waylog.audit.question import Question
from waylog.history.history_reader import HistoryUnreadable
from waylog.kafka.ranges.log_ranges import Watermarks
from waylog.kafka.topics import LOCATION

_ORDER: Final = list(ReaderKind)


class Positions(NamedTuple):
    """Offsets of groups and of the history, as they were read."""

    groups: Mapping[str, Mapping[int, int]]
    history: HistoryPosition | None
    unknown: Sequence[str] = ()
    #: There is a history, and it cannot be read now.
    is_history_unreadable: bool = False

    def readers(self, wanted: Question, refusing: Collection[str]) -> list[Reader]:
        """Return the readers, ordered by kind and name.

        `refusing` are those that have refused something: they exist, even without offsets. A group
        that is expected and has committed nothing has taken nothing.
        """
        found = [
            _reader(name, positions, wanted) for name, positions in sorted(self.groups.items())
        ]
        if self.history is not None:
            positions, is_exact = self.history
            is_expected = HISTORY not in wanted.ignored
            found.append(Reader(HISTORY, ReaderKind.HISTORY, is_expected, positions, is_exact))
        elif self.is_history_unreadable:
            found.append(_reader(HISTORY, None, wanted))
        known = {each.name for each in found}
        found += [_reader(name, {}, wanted) for name in sorted(wanted.expected - known)]
        known |= wanted.expected
        found += [_reader(name, None, wanted) for name in sorted(set(refusing) - known)]
        return sorted(found, key=lambda each: _ORDER.index(each.kind))


def read_positions(log: LogReader, history: HistoryRows | None) -> Positions:
    """Ask all groups, and look how far the history has come; raises LogUnreachable."""
    groups, more = log.committed(LOCATION)
    unknown = []
    if more:
        unknown.append(
            f"{more} more consumer groups were not asked for their offsets: of {GROUPS_MAX} and "
            "more, the first by name are"
        )
    if history is None:
        return Positions(groups, None, unknown)
    try:
        history.refresh()  # it may have been empty when it was opened
        position = history.position()
    except HistoryUnreadable as error:
        unknown.append(f"the history in {history.place} cannot be read: {error}")
        return Positions(groups, None, unknown, is_history_unreadable=True)
    if history.is_empty:
        unknown.append(
            f"the history in {history.place} has no file yet: its job has just begun, or does not "
            "run"
        )
    elif not position.is_exact:
        unknown.append(
            "the history has no checkpoint in its folder: how far its job has come is told by the "
            "newest file"
        )
    return Positions(groups, position, unknown)


def beyond_the_end(
    readers: Sequence[Reader], extents: Mapping[int, Watermarks], unknown: list[str]
) -> list[Reader]:
    """Return the readers without the offsets of those that are beyond the end of the log.

    Such offsets are of another log, or of one that has lost its end; that is noted in `unknown`.
    """
    checked = []
    for reader in readers:
        beyond = {
            partition: offset
            for partition, offset in (reader.positions or {}).items()
            if offset > (extents[partition].high if partition in extents else 0)
        }
        for partition, offset in beyond.items():
            end = extents[partition].high if partition in extents else 0
            unknown.append(
                f"{reader.name} is at offset {offset} of {LOCATION}-{partition}, which ends at "
                f"{end}: it has read another log, or this one has lost its end"
            )
        checked.append(reader._replace(positions=None) if beyond else reader)
    return checked


def _reader(name: str, positions: Mapping[int, int] | None, wanted: Question) -> Reader:
    if name == wanted.resolver_group:
        kind = ReaderKind.RESOLVER
    elif name.startswith(CONNECTOR_GROUP):
        kind = ReaderKind.CONNECTOR
    else:
        kind = ReaderKind.HISTORY if name == HISTORY else ReaderKind.GROUP
    is_expected = kind is not ReaderKind.GROUP or name in wanted.expected
    return Reader(name, kind, is_expected and name not in wanted.ignored, positions)
