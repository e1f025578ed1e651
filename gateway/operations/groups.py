"""Groups as administrators see them: members, lag by partition, offsets that are set anew."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from waylog.administration.extents import partition_extents
from waylog.administration.groups import (
    assigned_to,
    committed_offsets,
    find_group,
    list_groups,
    offset_targets,
    require_group,
    running,
    set_offsets,
)
from waylog.administration.log_access import LogAccess, NotInLog, partitions_of
from waylog.cli import CommandError

#: Members, and partitions, of one answer.
_MEMBERS_MAX: Final = 500
_PLACES_MAX: Final = 1_000
#: Partitions whose offsets are set by one request.
_SET_MAX: Final = 2_000


class GroupRow(msgspec.Struct, frozen=True):
    """A group in the list of all; share groups tell no number of members."""

    group: str
    type: str
    state: str
    members: int | None


class Member(msgspec.Struct, frozen=True):
    """A member of a group, and the partitions that it reads, by topic."""

    id: str
    client: str
    host: str
    reads: dict[str, list[int]]


class GroupPlace(msgspec.Struct, frozen=True):
    """The place of a group in a partition; end and lag are None while nobody leads it."""

    topic: str
    partition: int
    committed: int
    end: int | None
    lag: int | None


class ShownGroup(msgspec.Struct, frozen=True):
    """A group."""

    group: str
    state: str
    assignor: str
    coordinator: str
    members: list[Member]
    places: list[GroupPlace]
    #: Partitions that the group has committed; `places` has the first ones.
    partitions: int
    #: Of all `places`.
    lag: int


class NewOffset(msgspec.Struct, frozen=True):
    """An offset that is, or would be, set."""

    topic: str
    partition: int
    before: int | None
    after: int


def all_groups(access: LogAccess, admin: AdminClient) -> list[GroupRow]:
    """Return all groups by name; raises KafkaException and CommandError."""
    return [GroupRow(*each) for each in list_groups(access, admin)]


def describe_group(access: LogAccess, admin: AdminClient, name: str) -> ShownGroup:
    """Return a group; raises CommandError if there is none, KafkaException."""
    group = require_group(access, admin, name)
    committed = committed_offsets(access, admin, name)
    shown = dict(list(committed.items())[:_PLACES_MAX])
    extents = partition_extents(admin, shown)
    places = []
    for (topic, partition), offset in shown.items():
        extent = extents.get((topic, partition))
        # Records that retention has deleted are not part of the lag.
        lag = None if extent is None else max(0, extent.end - max(offset, extent.first))
        places.append(
            GroupPlace(topic, partition, offset, None if extent is None else extent.end, lag)
        )
    coordinator = getattr(group, "coordinator", None)
    return ShownGroup(
        name,
        group.state.name.lower() if group.state else "",
        group.partition_assignor or "",
        "" if coordinator is None else f"{coordinator.host}:{coordinator.port}",
        [_member(each) for each in group.members[:_MEMBERS_MAX]],
        places,
        len(committed),
        sum(each.lag or 0 for each in places),
    )


def _member(each: Any) -> Member:
    return Member(each.member_id, each.client_id, each.host, assigned_to(each))


def reset_offsets(
    access: LogAccess, admin: AdminClient, name: str, topic: str, where: str, *, is_dry: bool
) -> list[NewOffset]:
    """Set the offsets of a group in a topic, or tell what would be set.

    Raises CommandError for a group that runs, and for a topic or a place that there is not, and
    KafkaException.
    """
    group = find_group(access, admin, name)
    committed = committed_offsets(access, admin, name)
    if group is not None and group.members and not is_dry:
        raise running(group)
    if not committed and (group is None or group.state == ConsumerGroupState.DEAD):
        raise NotInLog(f"there is no group {name}")
    consumer = access.open_consumer()
    try:
        if (count := len(partitions_of(consumer, topic))) > _SET_MAX:
            raise CommandError(
                f"topic {topic} has {count} partitions; the page sets {_SET_MAX} at most, "
                "`waylog groups reset` any number"
            )
        targets = offset_targets(access, consumer, [topic], where, committed)
    finally:
        consumer.close()
    if not is_dry:
        set_offsets(access, admin, name, targets)
    return [
        NewOffset(*place, before if (before := committed.get(place, -1)) >= 0 else None, after)
        for place, after in targets.items()
    ]
