"""Brokers, controllers, elections and reassignments as administrators see and ask for them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from waylog.administration.cluster_admin import (
    FAILURES,
    ClusterAdmin,
    ClusterError,
    cluster_admin,
    refusal,
)
from waylog.administration.cluster_state import ClusterState, effective
from waylog.administration.log_access import LogAccess, LogAway, NotInLog
from waylog.administration.placement import check_moves, plan_moves
from waylog.cli import CommandError
from waylog.kafka.protocol.cluster_requests import (
    PREFERRED,
    UNCLEAN,
    LogDirectory,
    PartitionState,
    Place,
)
from waylog.kafka.protocol.error_codes import ErrorCode, reason_of
from waylog.kafka.protocol.requests import Broker

T = TypeVar("T")

_LEARN_S: Final = 4.0
#: Partitions that one answer names.
_NAMED_MAX: Final = 200


class Disk(msgspec.Struct, frozen=True):
    """A folder of a broker: what its logs take, and the room of its medium (-1: not known)."""

    path: str
    log_bytes: int
    total_bytes: int
    usable_bytes: int
    trouble: str = ""


class ShownBroker(msgspec.Struct, frozen=True):
    """A broker."""

    id: int
    address: str | None
    rack: str | None
    answers: bool
    is_controller: bool
    leads: int
    replicas: int
    in_sync: int
    disks: list[Disk]


class QuorumMember(msgspec.Struct, frozen=True):
    """A controller, or a broker that follows the quorum's log."""

    id: int
    role: str  # active, voter, observer
    end_offset: int
    behind: int
    seen_ms_ago: int | None


class ShownPartition(msgspec.Struct, frozen=True):
    """The replicas of a partition, the preferred leader first; leader -1 for none."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    in_sync: list[int]


class ShownMove(msgspec.Struct, frozen=True):
    """A partition whose replicas are being moved."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class Cluster(msgspec.Struct, frozen=True):
    """The brokers and the quorum; `unknown` names what nobody has told."""

    cluster_id: str
    brokers: list[ShownBroker]
    epoch: int | None
    quorum: list[QuorumMember]
    partitions: int | None
    #: Partitions with too few replicas in sync or without a leader: how many, and the first ones.
    under_replicated: int
    behind: list[ShownPartition]
    moving: list[ShownMove]
    unknown: list[str]


def describe_cluster(access: LogAccess) -> Cluster:
    """Return the state of the brokers, within some seconds; raises CommandError."""
    state = ClusterState(access)
    state.learn(_LEARN_S)
    members = state.cluster
    assert members is not None
    silent, unknown = state.silent, list(state.unknown)
    places = {place: effective(each, silent) for place, each in (state.partitions or {}).items()}
    leads = Counter(each.leader for each in places.values())
    has = Counter(node for each in places.values() for node in each.replicas)
    in_sync = Counter(node for each in places.values() for node in each.in_sync)
    controller = members.controller if state.quorum is None else state.quorum.leader
    brokers = []
    for node in sorted(members.brokers.keys() | has.keys()):
        known = members.brokers.get(node)
        disks: list[Disk] = []
        if known is not None and state.answers.get(node):
            try:
                disks = [_disk(each) for each in _log_directories(access, known.address)]
            except FAILURES as error:
                unknown.append(f"disks of broker {node}: {refusal(error)}")
        brokers.append(
            ShownBroker(
                node,
                None if known is None else "{}:{}".format(*known.address),
                None if known is None else known.rack,
                state.answers.get(node, False),
                node == controller,
                *(leads[node], has[node], in_sync[node]),
                disks,
            )
        )
    lacking = [
        ShownPartition(topic, index, each.leader, each.replicas, each.in_sync)
        for (topic, index), each in places.items()
        if len(each.in_sync) < len(each.replicas) or each.leader < 0
    ]
    try:
        moving = list_moves(access)
    except CommandError as error:
        moving = []
        unknown.append(f"reassignments: {error}")
    return Cluster(
        members.cluster_id,
        brokers,
        None if state.quorum is None else state.quorum.epoch,
        _quorum(state),
        None if state.partitions is None else len(places),
        len(lacking),
        lacking[:_NAMED_MAX],
        moving[:_NAMED_MAX],
        unknown,
    )


def _disk(each: LogDirectory) -> Disk:
    trouble = "" if not each.error else reason_of(each.error)
    return Disk(each.path, sum(each.sizes.values()), each.total_bytes, each.usable_bytes, trouble)


def _quorum(state: ClusterState) -> list[QuorumMember]:
    quorum = state.quorum
    if quorum is None:
        return []
    now_ms = time.time() * 1000
    found = []
    for is_voter, replicas in ((True, quorum.voters), (False, quorum.observers)):
        for each in replicas:
            leads = each.node == quorum.leader
            seen = None if leads or each.last_fetch_ms < 0 else int(now_ms - each.last_fetch_ms)
            role = "active" if leads else "voter" if is_voter else "observer"
            behind = max(0, quorum.high_watermark - each.end_offset)
            found.append(QuorumMember(each.node, role, each.end_offset, behind, seen))
    return found


def sizes_of_topic(access: LogAccess, topic: str) -> dict[int, int] | None:
    """Return the bytes of the largest replica of each partition; None if no broker tells."""
    sizes: dict[int, int] = {}
    told = False
    for directories in _told_directories(access):
        told = True
        for directory in directories:
            for (name, index), size in directory.sizes.items():
                if name == topic:
                    sizes[index] = max(size, sizes.get(index, 0))
    return sizes if told else None


def sizes_of_topics(access: LogAccess) -> dict[str, int]:
    """Return the bytes of all replicas of each topic, of brokers that tell."""
    sizes: Counter[str] = Counter()
    for directories in _told_directories(access):
        for directory in directories:
            for (name, _), size in directory.sizes.items():
                sizes[name] += size
    return dict(sizes)


def _told_directories(access: LogAccess) -> Iterator[list[LogDirectory]]:
    """Yield the log directories of each broker that tells. Raises CommandError."""
    for broker in _ask(access, lambda admin: admin.members()).brokers.values():
        try:
            yield _log_directories(access, broker.address)
        except FAILURES:
            continue


def _log_directories(access: LogAccess, address: Broker) -> list[LogDirectory]:
    with cluster_admin(access, brokers=[address], request_s=_LEARN_S) as admin:
        return admin.log_directories()


def list_moves(access: LogAccess) -> list[ShownMove]:
    """Return what is being moved; raises CommandError."""
    return [
        ShownMove(topic, index, each.replicas, each.adding, each.removing)
        for (topic, index), each in sorted(
            _ask(access, lambda admin: admin.reassignments()).items()
        )
    ]


class ElectionOutcome(msgspec.Struct, frozen=True):
    """What became of the election in a partition; `reason` is empty where a leader was elected."""

    partition: int
    reason: str


def elect(
    access: LogAccess, topic: str, partitions: Sequence[int] | None, *, unclean: bool = False
) -> list[ElectionOutcome]:
    """Elect leaders of partitions, of all if None, and tell where that was needed.

    Raises CommandError. With `unclean` a replica may lead that lacks acknowledged records.
    """

    def work(admin: ClusterAdmin) -> list[ElectionOutcome]:
        places = _places(admin.partitions(), topic, partitions)
        answers = admin.elect_leaders(UNCLEAN if unclean else PREFERRED, places)
        return [
            ElectionOutcome(index, "" if not error else message or reason_of(error))
            for (_, index), (error, message) in sorted(answers.items())
            if error != ErrorCode.ELECTION_NOT_NEEDED
        ]

    return _ask(access, work)


class PlannedMove(msgspec.Struct, frozen=True):
    """A partition whose replicas are to be moved; `refused` says why the cluster does not."""

    partition: int
    before: list[int]
    after: list[int] | None
    refused: str = ""


def reassign(
    access: LogAccess,
    topic: str,
    *,
    brokers: Sequence[int] = (),
    replicas: dict[int, list[int]] | None = None,
    replication_factor: int | None = None,
    cancel: bool = False,
    is_dry: bool = False,
) -> list[PlannedMove]:
    """Spread a topic over `brokers`, give partitions these `replicas`, or `cancel` moves.

    Raises CommandError for brokers and partitions that there are not.
    """

    def work(admin: ClusterAdmin) -> list[PlannedMove]:
        present = admin.partitions()
        moves: dict[Place, list[int] | None]
        if cancel:
            moves = {place: None for place in admin.reassignments() if place[0] == topic}
        else:
            wished = _wished(present, topic, brokers, replicas, replication_factor)
            check_moves(admin.members().brokers, wished, present)
            moves = dict(wished)
        answers = {} if is_dry or not moves else admin.alter_reassignments(moves)
        planned = []
        for place, after in moves.items():
            error, message = answers.get(place, (0, ""))
            refused = "" if not error else message or reason_of(error)
            planned.append(PlannedMove(place[1], present[place].replicas, after, refused))
        return planned

    return _ask(access, work)


def _wished(
    present: Mapping[Place, PartitionState],
    topic: str,
    brokers: Sequence[int],
    replicas: Mapping[int, list[int]] | None,
    replication_factor: int | None,
) -> dict[Place, list[int]]:
    if replicas is not None:
        _places(present, topic, list(replicas))
        return {(topic, index): nodes for index, nodes in replicas.items()}
    own = {place: present[place].replicas for place in _places(present, topic, None)}
    if not brokers:
        raise CommandError("no broker is named")
    if replication_factor is not None and not 1 <= replication_factor <= len(brokers):
        raise CommandError(
            f"replication factor {replication_factor}: {len(brokers)} brokers are named"
        )
    return plan_moves(own, list(dict.fromkeys(brokers)), replication_factor)


def _places(
    present: Mapping[Place, PartitionState], topic: str, partitions: Sequence[int] | None
) -> list[Place]:
    own = [place for place in present if place[0] == topic]
    if not own:
        raise NotInLog(f"there is no topic {topic}")
    if partitions is None:
        return own
    if unknown := sorted(set(partitions) - {index for _, index in own}):
        raise NotInLog(f"topic {topic} has no partition {unknown[0]}")
    return [(topic, index) for index in dict.fromkeys(partitions)]


def _ask(access: LogAccess, work: Callable[[ClusterAdmin], T]) -> T:
    try:
        with cluster_admin(access) as admin:
            return work(admin)
    except ClusterError as error:
        kind = LogAway if error.retriable else CommandError
        raise kind(refusal(error)) from None
    except FAILURES as error:
        raise LogAway(f"the log does not answer: {refusal(error)}") from None
