"""Divides connectors and tasks among workers, and moves as few as it can (KIP-415).

Workers keep what they run. What nobody runs is given to those that have least. What some have too
much is revoked in one round, and given to others in the next. The work of a worker that has gone is
not given away at once: the worker may be restarting, and gets it back if it returns within
`scheduled.rebalance.max.delay.ms`. Rounds that revoke come at growing intervals if one follows
another (KAFKA-12495).

The leader of each generation has an assignor; it decides by what members say and by what it has
assigned itself before.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from consumers.connect.group.work import Work
from consumers.connect.storage.states import TaskId

logger = logging.getLogger(__name__)

_Item = TypeVar("_Item", str, TaskId)
#: Milliseconds of the first interval between rounds that revoke, and its growth.
_REVOKING_BACKOFF_MS: Final = 10
_REVOKING_GROWTH: Final = 20


class MemberPlan(NamedTuple):
    """What a worker is to start and to stop, and what it has afterwards."""

    started: Work
    revoked: Work
    kept: Work


class Plan(NamedTuple):
    """What all workers are to do, and in how many milliseconds they meet again; 0: not for this."""

    members: Mapping[str, MemberPlan]
    delay_ms: int


class _Load:
    """What one worker has, while it is decided."""

    def __init__(self, member: str, work: Work) -> None:
        self.member: Final = member
        self.had: Final = work
        self.connectors: Final = set(work.connectors)
        self.tasks: Final = set(work.tasks)

    @property
    def work(self) -> Work:
        return Work.of(self.connectors, self.tasks)

    @property
    def is_empty(self) -> bool:
        return not self.connectors and not self.tasks

    def remove(self, work: Work) -> None:
        self.connectors.difference_update(work.connectors)
        self.tasks.difference_update(work.tasks)


class Assignor:
    """The assignor of one worker; `assign` is called while it leads."""

    def __init__(self, max_delay_ms: int) -> None:
        """`max_delay_ms` is `scheduled.rebalance.max.delay.ms`."""
        self._max_delay_ms: Final = max_delay_ms
        #: What was assigned in the last round, and in which generation.
        self._previous = Work()
        self._previous_revoked = Work()
        self._previous_generation = -1
        self._previous_members: frozenset[str] = frozenset()
        #: Workers without work that came while work was lost: they are probably the lost ones.
        self._candidates: Final[dict[str, None]] = {}
        #: When work that was lost is given away, in the caller's ms; 0: there is none.
        self._rebalance_at = 0
        self._delay_ms = 0
        self._revoked_before = False
        self._revoking_rounds = 0

    def assign(
        self,
        configured: Work,
        members: Mapping[str, Work],
        *,
        generation: int,
        completed_generation: int,
        now_ms: int,
    ) -> Plan:
        """Return a plan for members with the work that they say they have.

        `completed_generation` is the last one in which this worker got an assignment: if it is not
        the one of the last plan, that plan was not carried out.
        """
        if self._previous_generation != completed_generation:
            self._previous = Work()
        active = Work.union(members.values())
        if not self._previous_revoked.both(active).is_empty:
            # The last revocation was not carried out: it is decided anew.
            self._previous = active
        self._previous_revoked = Work()
        deleted = self._previous.minus(configured).plus(active.minus(configured))
        duplicated = _duplicated(members.values())
        lost = self._previous.minus(active, deleted)
        created = configured.minus(self._previous, active)

        revoked = {
            member: work.both(deleted).plus(work.both(duplicated))
            for member, work in members.items()
        }
        loads = [_Load(member, members[member]) for member in sorted(members)]
        for load in loads:
            load.remove(revoked[load.member])
        before = {load.member: load.work for load in loads}

        to_assign = created.plus(self._found_again(lost, loads, members.keys(), now_ms))
        if self._delay_ms == 0:
            freed = self._revoke_excess(configured, loads, revoked, now_ms)
            to_assign = to_assign.plus(freed)
        else:
            self._revoked_before = False
        _share([load.connectors for load in loads], sorted(to_assign.connectors))
        _share([load.tasks for load in loads], sorted(to_assign.tasks))

        plans = {
            load.member: MemberPlan(
                load.work.minus(before[load.member]), revoked[load.member], load.work
            )
            for load in loads
        }
        self._previous_revoked = Work.union(revoked.values())
        # What was lost and is not given away yet is not forgotten.
        kept = Work.union(plan.kept for plan in plans.values())
        self._previous = kept.plus(lost).minus(self._previous_revoked)
        self._previous_generation = generation
        self._previous_members = frozenset(members)
        return Plan(plans, self._delay_ms)

    # ---- work whose worker has gone ----

    def _found_again(
        self, lost: Work, loads: Sequence[_Load], members: Iterable[str], now_ms: int
    ) -> Work:
        """Return the lost work that is to be given away now; some may be given already."""
        if lost.is_empty and not self._revoked_before:
            self._reset_delay()
            return Work()
        if self._rebalance_at <= 0 and (
            lost.is_empty or self._previous_members <= frozenset(members)
        ):
            # Nobody has left: somebody has not got what was assigned.
            return lost
        if self._max_delay_ms == 0:
            return lost
        if 0 < self._rebalance_at <= now_ms:
            return self._due(lost, loads)
        self._candidates.update((load.member, None) for load in loads if load.is_empty)
        left_ms = self._rebalance_at - now_ms
        self._delay_ms = left_ms if left_ms > 0 else self._max_delay_ms
        self._rebalance_at = now_ms + self._delay_ms
        if not lost.is_empty:
            logger.info("%s was lost, and is given away in %d ms", lost, self._delay_ms)
        return Work()

    def _due(self, lost: Work, loads: Sequence[_Load]) -> Work:
        """Give lost work to workers that came meanwhile; else return it."""
        returned = [load for load in loads if load.member in self._candidates]
        self._reset_delay()
        self._revoked_before = False
        if not returned:
            return lost
        for number, connector in enumerate(sorted(lost.connectors)):
            returned[number % len(returned)].connectors.add(connector)
        for number, task in enumerate(sorted(lost.tasks)):
            returned[number % len(returned)].tasks.add(task)
        return Work()

    def _reset_delay(self) -> None:
        self._candidates.clear()
        self._rebalance_at = self._delay_ms = 0

    # ---- work that some have too much ----

    def _revoke_excess(
        self,
        configured: Work,
        loads: Sequence[_Load],
        revoked: dict[str, Work],
        now_ms: int,
    ) -> Work:
        """Revoke what is beyond a worker's share; return what it was only just given of that."""
        excess = _excess(configured, loads)
        freed = Work()
        for load in loads:
            given = excess.get(load.member, Work()).minus(load.had)
            load.remove(given)
            freed = freed.plus(given)
        excess = {
            load.member: taken
            for load in loads
            if not (taken := excess.get(load.member, Work()).both(load.had)).is_empty
        }
        if not excess:
            self._revoked_before = False
            self._revoking_rounds = 0
            return freed
        if self._revoked_before:
            self._revoking_rounds += 1
            delay_ms = _REVOKING_BACKOFF_MS * _REVOKING_GROWTH ** (self._revoking_rounds - 1)
            self._delay_ms = min(delay_ms, self._max_delay_ms)
            if self._delay_ms:
                self._rebalance_at = now_ms + self._delay_ms
                return freed
        self._revoked_before = True
        for load in loads:
            taken = excess.get(load.member, Work())
            revoked[load.member] = revoked[load.member].plus(taken)
            load.remove(taken)
        return freed


def _duplicated(works: Iterable[Work]) -> Work:
    """Return what more than one worker says it has."""
    listed = list(works)
    connectors = Counter(each for work in listed for each in work.connectors)
    tasks = Counter(each for work in listed for each in work.tasks)
    return Work.of(
        (each for each, count in connectors.items() if count > 1),
        (each for each, count in tasks.items() if count > 1),
    )


def _excess(configured: Work, loads: Sequence[_Load]) -> dict[str, Work]:
    """Return what each worker has beyond its share; nothing if all have none."""
    if all(load.is_empty for load in loads) or configured.is_empty:
        return {}
    connectors = _beyond(
        len(configured.connectors), loads, lambda load: _kept_first(load.connectors, load.had[0])
    )
    tasks = _beyond(len(configured.tasks), loads, lambda load: _kept_first(load.tasks, load.had[1]))
    return {
        member: Work.of(connectors.get(member, ()), tasks.get(member, ()))
        for member in {*connectors, *tasks}
    }


def _beyond(
    total: int, loads: Sequence[_Load], of: Callable[[_Load], list[_Item]]
) -> dict[str, list[_Item]]:
    """Return the last items of each worker beyond its share of the total.

    Shares differ by one at most; those that have most may keep the one more.
    """
    least, extras = divmod(total, len(loads))
    beyond: dict[str, list[_Item]] = {}
    for load in sorted(loads, key=lambda load: (-len(of(load)), load.member)):
        held = of(load)
        if len(held) <= least:
            break
        share = least
        if extras:
            extras -= 1
            share += 1
        if len(held) > share:
            beyond[load.member] = held[share:]
    return beyond


def _kept_first(items: set[_Item], had: frozenset[_Item]) -> list[_Item]:
    """Return items in order, before them those that a worker runs already."""
    return sorted(items, key=lambda each: (each not in had, each))


def _share(loads: Sequence[set[_Item]], items: Iterable[_Item]) -> None:
    """Give each item to the one that has least."""
    for item in items:
        min(loads, key=len).add(item)
