"""Waits for the answers of a cluster, and says what the cluster lacks if one is late.

A client library tries again for a minute where no majority of the controllers or no leader is left,
and then says only that time is up. Here all brokers are asked after a few seconds. If something is
missing the command ends with a line that names it; if nothing is, the machine may just be slow,
and the command goes on waiting. The limits of all requests of the tools for a log are here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Final, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException

from waylog.administration.cluster_admin import LATE_S, REQUEST_S
from waylog.administration.cluster_state import ClusterState, effective
from waylog.administration.log_access import LogAccess, LogAway
from waylog.cli import CommandError
from waylog.kafka.protocol.cluster_requests import Place

T = TypeVar("T")

#: Seconds for finding out what is missing.
_LEARN_S: Final = 3.0
_PLACES_MAX: Final = 3
#: So often is an answer late before a missing broker or leader is a reason to give up.
_CERTAIN: Final = 2

_TIMED_OUT: Final = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._MSG_TIMED_OUT}
)
#: Errors that a cluster without a majority, a leader or a coordinator may cause.
_OF_ABSENCE: Final = _TIMED_OUT | {
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._WAIT_COORD,
    KafkaError._DESTROY, KafkaError.REQUEST_TIMED_OUT, KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR,
    KafkaError.BROKER_NOT_AVAILABLE, KafkaError.NETWORK_EXCEPTION, KafkaError.NOT_CONTROLLER,
    KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}  # fmt: skip
#: Errors that pass once a leader that was just elected is known, and has caught up.
_OF_ELECTION: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE,
    }
)  # fmt: skip
_ELECTION_PAUSE_S: Final = 0.25


class Lack(NamedTuple):
    """What a cluster lacks."""

    #: Brokers that the metadata names and that do not answer.
    silent: set[int]
    #: Brokers that have replicas and that the metadata does not name: they are known to be dead.
    gone: set[int]
    has_controller: bool
    #: Partitions that no broker leads that answers.
    leaderless: list[Place]
    #: Partitions with fewer replicas in sync than they have, with both numbers.
    behind: dict[Place, tuple[int, int]]
    #: Why nothing could be learnt.
    unreachable: str = ""

    @property
    def is_lasting(self) -> bool:
        """True if waiting does not help before somebody starts a broker.

        Where controllers are left, others soon stand in for a broker that does not answer.
        """
        return bool(self.unreachable) or not self.has_controller

    def ends_wait(self, late: int) -> bool:
        """Return whether to give up when an answer, or a record, has been late so often."""
        return self.is_lasting or (late >= _CERTAIN and bool(self.silent or self.leaderless))

    def text(self, *, writes: bool = False) -> str:
        """Return it as one line, empty if nothing is missing.

        `writes`: it is about records that wait for replicas in sync.
        """
        if self.unreachable:
            return self.unreachable
        parts = []
        dead = sorted(
            self.silent | self.gone if self.is_lasting or self.leaderless or writes else self.silent
        )
        if dead:
            word, verb = ("broker", "does") if len(dead) == 1 else ("brokers", "do")
            parts.append(f"{word} {', '.join(map(str, dead))} {verb} not answer")
        if not self.has_controller:
            parts.append("no majority of the controllers answers")
        if self.leaderless:
            parts.append(f"no leader answers for {_named(self.leaderless)}")
        if writes and self.behind:
            has, of = min(self.behind.values())
            parts.append(f"{has} of {of} replicas are in sync of {_named(list(self.behind))}")
        return "; ".join(parts)


def _named(places: list[Place]) -> str:
    names = ", ".join(f"{topic}:{index}" for topic, index in sorted(places)[:_PLACES_MAX])
    more = len(places) - _PLACES_MAX
    return f"{names} and {more} more" if more > 0 else names


def find_lack(access: LogAccess, topics: Collection[str] | None = None) -> Lack:
    """Ask all brokers what is missing, for a few seconds; `topics` None stands for all."""
    state = ClusterState(access)
    try:
        state.learn(_LEARN_S, late_s=_LEARN_S)
    except CommandError as error:
        return Lack(
            set(), set(), has_controller=True, leaderless=[], behind={}, unreachable=str(error)
        )
    silent = state.silent
    everywhere = {
        place: effective(each, silent) for place, each in (state.partitions or {}).items()
    }
    partitions = {
        place: each for place, each in everywhere.items() if topics is None or place[0] in topics
    }
    members = set() if state.cluster is None else set(state.cluster.brokers)
    return Lack(
        silent,
        set().union(*(each.replicas for each in everywhere.values())) - members,
        has_controller="controllers" not in state.unknown,
        leaderless=[place for place, each in partitions.items() if each.leader < 0],
        behind={
            place: (len(each.in_sync), len(each.replicas))
            for place, each in partitions.items()
            if len(each.in_sync) < len(each.replicas)
        },
    )


def result_of(access: LogAccess, future: Future[T], topics: Collection[str] | None = ()) -> T:
    """Return the result of a request; raises KafkaException.

    Raises CommandError if the answer is late and the cluster lacks something.
    """
    deadline = time.monotonic() + REQUEST_S
    late = 0
    while True:
        try:
            return future.result(LATE_S)
        except TimeoutError:
            late += 1
            _raise_lack(access, topics, late)
            if time.monotonic() >= deadline:
                raise LogAway("the cluster does not answer in time") from None
        except KafkaException as error:
            if _code(error) in _OF_ABSENCE:
                _raise_lack(access, topics, _CERTAIN)
            raise


def answer_to(
    access: LogAccess, ask: Callable[[float], T], topics: Collection[str] | None = ()
) -> T:
    """Return what `ask` returns, which takes the seconds that it may wait; raises KafkaException.

    Asks again while time is up and nothing is missing, and while leaders change, which no client
    library does for every request. Raises CommandError if the answer is late and the cluster lacks
    something.
    """
    begun = time.monotonic()
    late = 0
    while True:
        try:
            return ask(LATE_S)
        except KafkaException as error:
            code, passed_s = _code(error), time.monotonic() - begun
            if code in _OF_ELECTION and passed_s < LATE_S * (late + 1):
                time.sleep(_ELECTION_PAUSE_S)
                continue
            late += 1
            if code in _OF_ABSENCE:
                _raise_lack(access, topics, late)
            if code not in _TIMED_OUT | _OF_ELECTION or passed_s >= REQUEST_S:
                raise


def _code(error: KafkaException) -> int:
    cause = error.args[0] if error.args else None
    return cause.code() if isinstance(cause, KafkaError) else 0


def _raise_lack(access: LogAccess, topics: Collection[str] | None, late: int) -> None:
    """Raise CommandError for what is missing; `late`: how often an answer has been late by now."""
    lack = find_lack(access, topics)
    if lack.ends_wait(late):
        raise LogAway(lack.text())


class Silence:
    """Notices that nothing comes, and at growing distances asks what is missing."""

    def __init__(self, access: LogAccess, topic: str) -> None:
        self._access = access
        self._topic = topic
        self._wait_s = LATE_S
        self._late = 0
        self._since = time.monotonic()

    def ended(self) -> None:
        """Note that something has come."""
        self._wait_s = LATE_S
        self._late = 0
        self._since = time.monotonic()

    def check(self, *, brokers_matter: bool) -> None:
        """Raise CommandError if nothing has come for a while and the cluster lacks something.

        Without `brokers_matter` a broker alone that does not answer is no reason.
        """
        if time.monotonic() - self._since < self._wait_s:
            return
        lack = find_lack(self._access, (self._topic,))
        self._late += 1
        may_pass = lack.leaderless or (brokers_matter and lack.silent)
        if lack.is_lasting or (may_pass and self._late >= _CERTAIN):
            raise LogAway(lack.text())
        self._wait_s = LATE_S * 2 ** (self._late - 1)
        self._since = time.monotonic()
