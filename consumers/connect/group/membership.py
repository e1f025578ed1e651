"""Keeps a worker in its group: joins, sends heartbeats, and gives up work when it is cut off.

A worker that the coordinator has not heard for `session.timeout.ms` is removed from the group, and
others get its work, at once or after `scheduled.rebalance.max.delay.ms`. So a worker that has had
no answer for two thirds of that time takes itself for cut off, and has the last third to stop.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.group.member import Member
from consumers.connect.group.protocol import PROTOCOL_TYPE, Assignment, MalformedBytes
from consumers.connect.group.work import Work
from waylog.kafka.group_coordinator import CoordinatorUnreachable, GroupCoordinator
from waylog.kafka.protocol.error_codes import ErrorCode, reason_of
from waylog.kafka.protocol.group_requests import Joined
from waylog.process.background import spawn
from waylog.process.log_throttle import RepeatedFailure

logger = logging.getLogger(__name__)

_BACKOFF_S: Final = 0.1
_BACKOFF_MAX_S: Final = 1.0
_LEAVE_S: Final = 3.0
_WATCH_S: Final = 0.1
#: Errors after which another broker may coordinate the group.
_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_AGAIN: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NETWORK_EXCEPTION})


class NotAMember(ConnectException):
    """The group does not take this worker, whatever it waits: a setting is wrong."""


class GroupTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Times of a member, in milliseconds."""

    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 60_000

    @property
    def patience_s(self) -> float:
        """Seconds without an answer after which the worker takes itself for cut off."""
        return self.session_timeout_ms / 1000 * 2 / 3

    @property
    def stop_s(self) -> float:
        """Seconds that its work then has to stop."""
        return self.session_timeout_ms / 1000 / 3


class Configurations(Protocol):
    """What the group is about."""

    @property
    def offset(self) -> int:
        """Up to where the configurations have been read."""

    def configured(self) -> Work:
        """Return all connectors and tasks."""

    async def refresh(self) -> bool:
        """Read to the end; return whether that was possible in time."""


class Membership:
    """The membership of one worker. All methods are called on the event loop."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        member: Member,
        timing: GroupTiming,
        configurations: Configurations,
        *,
        wake: Callable[[], None],
        cut_off: Callable[[Work], None],
    ) -> None:
        """`wake` is called when the worker has to join again, `cut_off` with work to give up."""
        self._coordinator: Final = coordinator
        self.member: Final = member
        self._timing: Final = timing
        self._configurations: Final = configurations
        self._wake: Final = wake
        self._cut_off: Final = cut_off
        self._loop: Final = asyncio.get_running_loop()
        self._rejoins = True
        self._is_joining = False
        #: When the last heartbeat was sent that was answered.
        self._heard_at = self._loop.time()
        self._trouble: Final = RepeatedFailure()
        self._tasks: Final = [
            spawn(self._beat(), "heartbeats of the worker", endless=True),
            spawn(self._watch(), "watch of the worker's membership", endless=True),
        ]

    @property
    def must_join(self) -> bool:
        """Tell whether the worker has to join again."""
        return self._rejoins

    @property
    def is_held(self) -> bool:
        """Tell whether the coordinator still counts this worker as a member, for all it knows."""
        session_s = self._timing.session_timeout_ms / 1000
        return self.member.assignment is not None and (
            self._loop.time() - self._heard_at < session_s
        )

    def rejoin(self) -> None:
        """Have the worker join again."""
        self._rejoins = True
        self._wake()

    async def join(self) -> Assignment:
        """Join the group; return what the leader has assigned. Takes as long as it takes.

        Raises NotAMember, GroupForbidden.
        """
        self._is_joining = True
        backoff_s = _BACKOFF_S
        try:
            while True:
                try:
                    assignment = await self._join_once()
                except CoordinatorUnreachable as error:
                    self._coordinator.forget()
                    if self._trouble.is_new(error):
                        logger.warning("waiting for the coordinator of the group: %s", error)
                    await asyncio.sleep(backoff_s * random.uniform(0.8, 1.2))
                    backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)
                    continue
                if assignment is not None:
                    self._trouble.succeeded()
                    return assignment
        finally:
            self._is_joining = False

    async def leave(self) -> None:
        """Leave the group; the worker may join again."""
        member = self.member
        if not member.member_id:
            return
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._coordinator.leave(member.member_id, _LEAVE_S)
        except (CoordinatorUnreachable, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            logger.warning("the group was not left in order: %s", reason)
        member.forget_generation(and_id=True)

    async def close(self) -> None:
        """End heartbeats and connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._coordinator.close()

    # ---- joining ----

    async def _join_once(self) -> Assignment | None:
        """Return the assignment, None to try again at once."""
        member, timing = self.member, self._timing
        # One that was frozen must not say that it has what others have got meanwhile.
        self._look_whether_cut_off()
        self._rejoins = False
        joined = await self._coordinator.join(
            member.member_id,
            PROTOCOL_TYPE,
            member.offered(self._configurations.offset),
            session_timeout_ms=timing.session_timeout_ms,
            rebalance_timeout_ms=timing.rebalance_timeout_ms,
        )
        if joined.error:
            await self._refused(joined.error, joined.member_id)
            return None
        member.joined(joined.member_id, joined.generation, joined.protocol)
        asked_at = self._loop.time()
        synced = await self._coordinator.sync(
            joined.generation,
            joined.member_id,
            await self._assignments(joined),
            rebalance_timeout_ms=timing.rebalance_timeout_ms,
        )
        if synced.error:
            await self._refused(synced.error, "")
            return None
        self._heard_at = max(self._heard_at, asked_at)
        try:
            assignment = member.synced(synced.assignment)
        except MalformedBytes as error:
            logger.error("the leader's assignment: %s", error)
            await asyncio.sleep(_BACKOFF_MAX_S)
            return None
        logger.info(
            "generation %d: this worker runs %s%s%s", joined.generation, assignment.work,
            ", and leads" if member.is_leader else "",
            "" if assignment.revoked.is_empty else f"; it gives {assignment.revoked} back",
        )  # fmt: skip
        return assignment

    async def _assignments(self, joined: Joined) -> dict[str, bytes]:
        if joined.leader != joined.member_id:
            return {}
        configurations = self._configurations
        if self.member.furthest(joined.members, configurations.offset) is not None:
            await configurations.refresh()
        return self.member.lead(
            joined.members,
            configurations.configured(),
            configurations.offset,
            round(self._loop.time() * 1000),
        )

    async def _refused(self, error: int, member_id: str) -> None:
        member = self.member
        if error == ErrorCode.MEMBER_ID_REQUIRED:
            member.member_id = member_id
        elif error == ErrorCode.UNKNOWN_MEMBER_ID:
            member.forget_generation(and_id=True)
        elif error == ErrorCode.ILLEGAL_GENERATION:
            member.forget_generation(and_id=False)
        elif error in _ELSEWHERE:
            raise CoordinatorUnreachable(reason_of(error))
        elif error in _AGAIN:
            await asyncio.sleep(_BACKOFF_S)
        else:
            raise NotAMember(f"the group does not take this worker: {reason_of(error)}")

    # ---- staying ----

    async def _beat(self) -> None:
        interval_s = self._timing.heartbeat_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            member = self.member
            if member.generation < 0 or not member.member_id:
                continue
            sent_at = self._loop.time()
            generation = member.generation
            try:
                error = await self._coordinator.heartbeat(
                    generation, member.member_id, max(interval_s, 1.0)
                )
            except CoordinatorUnreachable as unreachable:
                if self._trouble.is_new(unreachable):
                    logger.warning("heartbeat: %s", unreachable)
                if not self._is_joining:
                    self._coordinator.forget()
                continue
            self._beaten(error, generation, sent_at)

    def _beaten(self, error: int, generation: int, sent_at: float) -> None:
        if error in (0, ErrorCode.REBALANCE_IN_PROGRESS):
            self._heard_at = max(self._heard_at, sent_at)
        if self._is_joining or generation != self.member.generation or not error:
            return
        if error in _ELSEWHERE:
            self._coordinator.forget()
            return
        if error != ErrorCode.REBALANCE_IN_PROGRESS:
            logger.info("heartbeat: %s: joining again", reason_of(error))
            self.member.forget_generation(and_id=error == ErrorCode.UNKNOWN_MEMBER_ID)
        self.rejoin()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_S)
            self._look_whether_cut_off()

    def _look_whether_cut_off(self) -> None:
        silent_s = self._loop.time() - self._heard_at
        if self.member.assignment is None or silent_s < self._timing.patience_s:
            return
        work = self.member.cut_off()
        if not work.is_empty:
            logger.error(
                "the coordinator has not answered for %.1f s: this worker stops %s, which others "
                "may get",
                *(silent_s, work),
            )
        self._cut_off(work)
        self.rejoin()
