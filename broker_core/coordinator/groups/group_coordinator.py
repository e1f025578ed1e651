"""The group coordinator of one broker: it routes requests to groups and keeps deadlines."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from broker_core import errors
from broker_core.coordinator.effects import Append, Codes, Moment, Respond, Token
from broker_core.coordinator.groups import classic_members, consumer_group_records
from broker_core.coordinator.groups.consumer_group import ConsumerGroup, left
from broker_core.coordinator.groups.consumer_heartbeat import ConsumerHeartbeat
from broker_core.coordinator.groups.consumer_member import LEAVES, ConsumerMember
from broker_core.coordinator.groups.group import Group
from broker_core.coordinator.groups.group_loading import GroupLoader
from broker_core.coordinator.groups.group_migration import downgrade, is_classic_without, upgrade
from broker_core.coordinator.groups.member import JoinRequest, join_error, sync_error
from broker_core.coordinator.groups.offset_coordinator import GroupSettings, OffsetCoordinator
from broker_core.coordinator.groups.states import GroupState
from broker_core.coordinator.groups.subscription import CONSUMER
from broker_core.coordinator.groups.topic_view import TopicView
from broker_core.coordinator.offsets import (
    encode_group_key,
)

if TYPE_CHECKING:
    from broker_core.coordinator.effects import GroupResponse
    from broker_core.protocol.definitions.bodies import (
        ConsumerGroupHeartbeatResponse,
        SyncGroupRequest,
    )

logger = logging.getLogger(__name__)


class GroupCoordinator(OffsetCoordinator):
    """All groups of one broker; a step returns no effects, `take_effects()` does."""

    def __init__(
        self, settings: GroupSettings, *, topics: TopicView, new_id: Callable[[], str]
    ) -> None:
        super().__init__(settings, topics=topics, new_id=new_id)
        # (monotonic ms, group id). An entry may be too early, never too late: heartbeats only
        # postpone deadlines, and `_schedule` adds an entry when one has moved closer.
        self._deadlines: list[tuple[int, str]] = []
        self._scheduled: dict[str, int] = {}

    # -------------------------------------------------------------------------------------- steps

    def join_group(self, request: JoinRequest, token: Token, now: Moment) -> None:
        """Handle JoinGroup."""
        settings = self._settings
        code = errors.NONE
        if not request.group_id:
            code = errors.InvalidGroupId.code
        elif not (
            settings.session_timeout_min_ms
            <= request.session_timeout_ms
            <= settings.session_timeout_max_ms
        ):
            code = errors.InvalidSessionTimeout.code
        elif request.member_id and request.group_id not in self.groups:
            # The group has been removed since it gave out this id: the client has to get a new one.
            code = errors.UnknownMemberId.code
        if code:
            self._effects.append(Respond(token, join_error(code, request.member_id)))
            return
        group = self._group(request.group_id)
        if isinstance(group, ConsumerGroup):
            if group.members:
                self._join_consumer_group(group, request, token, now)
                return
            group = self._become_classic(group)
        group.join(request, token, now)
        self._schedule(group)

    def sync_group(self, request: SyncGroupRequest, token: Token, now: Moment) -> None:
        """Handle SyncGroup."""
        group = self.groups.get(request["group_id"])
        if isinstance(group, ConsumerGroup):
            try:
                response = classic_members.sync(group, request, now)
            except errors.BrokerError as error:
                response = sync_error(error.code)
            self._effects.append(Respond(token, response))
            self._schedule(group)
            return
        if group is None:
            self._effects.append(Respond(token, sync_error(errors.UnknownMemberId.code)))
            return
        group.sync(
            request["member_id"],
            request["group_instance_id"],
            request["generation_id"],
            (request["protocol_type"], request["protocol_name"]),
            {each["member_id"]: each["assignment"] for each in request["assignments"]},
            token,
            now,
        )
        self._schedule(group)

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: Moment,
    ) -> int:
        """Handle Heartbeat; return the error code of the response."""
        group = self.groups.get(group_id)
        if group is None:
            return errors.UnknownMemberId.code
        if isinstance(group, ConsumerGroup):
            try:
                classic_members.heartbeat(group, member_id, instance_id, generation, now)
            except errors.BrokerError as error:
                self._schedule(group)
                return error.code
            return errors.NONE
        return group.heartbeat(member_id, instance_id, generation, now)

    def leave_group(
        self, group_id: str, members: Iterable[tuple[str, str | None]], now: Moment
    ) -> list[int]:
        """Handle LeaveGroup; return one error code for each member."""
        group = self.groups.get(group_id)
        if group is None:
            return [errors.UnknownMemberId.code for _ in members]
        if isinstance(group, ConsumerGroup):
            return [
                self._leave_consumer_group(group_id, member_id, instance_id, now)
                for member_id, instance_id in members
            ]
        codes = [group.leave(member_id, instance_id, now) for member_id, instance_id in members]
        self._schedule(group)
        return codes

    def consumer_heartbeat(self, asked: ConsumerHeartbeat, token: Token, now: Moment) -> None:
        """Handle ConsumerGroupHeartbeat; a refusal has "error_code" and "error_message"."""
        records: list[tuple[bytes, bytes | None]] = []
        try:
            group = self._consumer_group(asked, records, now)
            if asked.epoch == LEAVES:
                leaving = group.expect(asked.member_id, asked.instance_id)
                self._give_up(group, leaving, now, [Respond(token, left(asked))])
                return
            was_known = asked.member_id in group.members
            response, made = group.heartbeat(asked, now)
        except errors.BrokerError as error:
            refusal: ConsumerGroupHeartbeatResponse = {
                "error_code": error.code,
                "error_message": str(error),
            }
            self._effects.append(Respond(token, refusal))
            return
        self.groups[group.group_id] = group
        if not was_known or made:
            # Otherwise deadlines have only been postponed.
            self._schedule(group)
        self._append_records(group, records + made, [Respond(token, response)])

    def _consumer_group(
        self,
        asked: ConsumerHeartbeat,
        records: list[tuple[bytes, bytes | None]],
        now: Moment,
    ) -> ConsumerGroup:
        group = self.groups.get(asked.group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if asked.epoch == 0:
            new = self._new_consumer(asked.group_id)
            if group is None:
                return new
            if group.state is GroupState.EMPTY:
                new.take_offsets(group)
                records.append((encode_group_key(asked.group_id), None))
                return new
            if self._can_upgrade(group, new):
                records += upgrade(group, new, now)
                return new
        raise errors.GroupIdNotFound(f"Group {asked.group_id} is not a consumer group.")

    def _can_upgrade(self, group: Group, new: ConsumerGroup) -> bool:
        return (
            self._settings.migration.allows_upgrade
            and group.protocol_type == CONSUMER
            and len(group.members) <= new.settings.size_max
        )

    def _become_classic(self, group: ConsumerGroup) -> Group:
        """Convert an empty group to the classic protocol."""
        new = self._new_classic(group.group_id)
        new.take_offsets(group)
        self.groups[group.group_id] = new
        self._append_records(new, consumer_group_records.group_tombstones(group.group_id), [])
        return new

    def _join_consumer_group(
        self, group: ConsumerGroup, request: JoinRequest, token: Token, now: Moment
    ) -> None:
        replaced = group.static_member(request.instance_id or "")
        is_last = (
            replaced is not None
            and not request.member_id
            and is_classic_without(group, replaced)
            and self._settings.migration.allows_downgrade
            and len(group.members) <= self._settings.size_max
        )
        try:
            response, records = classic_members.join(group, request, self._new_id, now)
        except errors.BrokerError as error:
            self._effects.append(Respond(token, join_error(error.code, request.member_id)))
            return
        becomes: Group | ConsumerGroup = group
        if is_last:
            # A static member returns with the classic protocol; it keeps its partitions.
            becomes = classic = self._new_classic(group.group_id)
            records += downgrade(group, classic, now, without=None)
            self.groups[group.group_id] = classic
        self._schedule(becomes)
        self._append_records(becomes, records, [Respond(token, response)])

    def _leave_consumer_group(
        self, group_id: str, member_id: str, instance_id: str | None, now: Moment
    ) -> int:
        group = self.groups[group_id]
        if isinstance(group, Group):
            # The group became classic when the previous member in the request left.
            return group.leave(member_id, instance_id, now)
        if instance_id is not None and not member_id:
            static = group.static_member(instance_id)
            member_id = "" if static is None else static.member_id
        try:
            member = group.expect(member_id, instance_id)
        except errors.BrokerError as error:
            return error.code
        self._give_up(group, member, now, [])
        return errors.NONE

    def _give_up(
        self, group: ConsumerGroup, member: ConsumerMember, now: Moment, responses: list[Respond]
    ) -> None:
        """Remove a member; the group becomes classic if only classic members are left."""
        if (
            self._settings.migration.allows_downgrade
            and is_classic_without(group, member)
            and len(group.members) - 1 <= self._settings.size_max
        ):
            classic = self._new_classic(group.group_id)
            records = downgrade(group, classic, now, without=member)
            self.groups[group.group_id] = classic
            self._append_records(classic, records, responses)
            classic.ask_to_join_again(now)
            self._schedule(classic)
            return
        self._append_records(group, group.remove(member, now), responses)

    def _append_records(
        self,
        group: Group | ConsumerGroup,
        records: list[tuple[bytes, bytes | None]],
        responses: list[Respond],
    ) -> None:
        # Also without records: the response may rely on records that were appended just before.
        if records or responses:
            self._effects.append(Append(group.group_id, records, responses, is_awaited=False))

    def appended(self, append: Append, now: Moment) -> None:
        """Apply an effect whose records are stored."""
        group = self.groups.get(append.group_id)
        if group is not None:
            if append.producer is not None:
                pending = group.pending_offsets.setdefault(append.producer[0], {})
                pending.update(
                    (place, each) for place, each in append.offsets.items() if each is not None
                )
            for place, committed in append.offsets.items() if append.producer is None else ():
                if committed is None:
                    group.offsets.pop(place, None)
                else:
                    group.offsets[place] = committed
            if append.stabilises is not None and isinstance(group, Group):
                group.stabilise(append.stabilises, now)
                self._schedule(group)
        self._effects.extend(append.responses)

    def append_failed(
        self, append: Append, now: Moment, code: int = errors.CoordinatorNotAvailable.code
    ) -> None:
        """Answer with an error: the records of an effect were not stored."""
        for token, response in append.responses:
            self._effects.append(Respond(token, _failed(response, code)))
        group = self.groups.get(append.group_id)
        if isinstance(group, Group) and append.stabilises is not None:
            group.cannot_stabilise(append.stabilises, code, now)
            self._schedule(group)

    # --------------------------------------------------------------------------------------- time

    def next_deadline(self) -> int | None:
        """Return the monotonic ms at which `tick` should be called; None if nothing is due."""
        return self._deadlines[0][0] if self._deadlines else None

    def tick(self, now: Moment) -> None:
        """Do everything that is due now; what becomes due by it is left to the next tick."""
        group_ids: list[str] = []
        while self._deadlines and self._deadlines[0][0] <= now.monotonic_ms:
            due, group_id = heapq.heappop(self._deadlines)
            if self._scheduled.get(group_id) == due:
                del self._scheduled[group_id]
                group_ids.append(group_id)
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                self._give_up_late(group, now)
            elif group is not None:
                group.tick(now)
            group = self.groups.get(group_id)
            if group is not None:
                self._schedule(group)

    def _give_up_late(self, group: ConsumerGroup, now: Moment) -> None:
        for member_id, wait in group.deadlines.due(now.monotonic_ms):
            member = group.members.get(member_id)
            if member is None or self.groups.get(group.group_id) is not group:
                continue
            logger.info("group %s: %s %s", group.group_id, member_id, wait.value)
            self._give_up(group, member, now, [])

    def _schedule(self, group: Group | ConsumerGroup) -> None:
        due = group.next_deadline()
        scheduled = self._scheduled.get(group.group_id)
        if due is not None and (scheduled is None or due < scheduled):
            self._scheduled[group.group_id] = due
            heapq.heappush(self._deadlines, (due, group.group_id))

    # ------------------------------------------------------------------------ loading and unloading

    def begin_loading(self) -> GroupLoader:
        """Return a loader for the records of a partition of `__consumer_offsets`, in log order."""
        return GroupLoader(self._new_classic, self._new_consumer)

    def adopt(self, loader: GroupLoader, now: Moment) -> None:
        """Take over the groups of a partition that is loaded; their sessions begin."""
        self.groups.update(loader.groups)
        for group in loader.groups.values():
            if isinstance(group, ConsumerGroup):
                group.finish_loading(now)
            self._schedule(group)

    def unload(self, is_concerned: Callable[[str], bool]) -> None:
        """Drop groups that another broker coordinates now; members that wait get NotCoordinator."""
        for group_id in [each for each in self.groups if is_concerned(each)]:
            group = self.groups.pop(group_id)
            self._scheduled.pop(group_id, None)
            if isinstance(group, Group):
                group.refuse_all_waiting(errors.NotCoordinator.code)


def _failed(response: Any, code: int) -> GroupResponse:
    """Return what is sent in place of a response whose records were not stored."""
    if "codes" in response:
        return Codes(error_code=code, codes=dict.fromkeys(response["codes"], code))
    if "member_epoch" in response:
        failed: ConsumerGroupHeartbeatResponse = {"error_code": code}
        return failed
    return join_error(code, response.get("member_id", ""))
