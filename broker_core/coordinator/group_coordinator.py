"""All groups of one broker: finds the group of a request, keeps offsets and deadlines."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from broker_core import errors
from broker_core.coordinator import classic_members, consumer_group_records
from broker_core.coordinator.consumer_group import ConsumerGroup, ConsumerGroupSettings, left
from broker_core.coordinator.consumer_heartbeat import ConsumerHeartbeat
from broker_core.coordinator.consumer_member import LEAVES, ConsumerMember
from broker_core.coordinator.effects import Append, Effect, Moment, Respond, Token
from broker_core.coordinator.group import Group
from broker_core.coordinator.group_loading import GroupLoader
from broker_core.coordinator.group_migration import downgrade, is_classic_without, upgrade
from broker_core.coordinator.member import JoinRequest, join_error, sync_error
from broker_core.coordinator.migration_policy import MigrationPolicy
from broker_core.coordinator.offsets import (
    CommittedOffset,
    OffsetToCommit,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
)
from broker_core.coordinator.states import GroupState
from broker_core.coordinator.subscription import CONSUMER
from broker_core.coordinator.topic_view import TopicView

logger = logging.getLogger(__name__)

_MINUTE_MS: Final = 60_000


class GroupSettings(NamedTuple):
    """The broker's `group.*` and `offset*` properties."""

    initial_rebalance_delay_ms: int = 3000
    session_timeout_min_ms: int = 6000
    session_timeout_max_ms: int = 30 * _MINUTE_MS
    size_max: int = 2**31 - 1
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * _MINUTE_MS
    consumer: ConsumerGroupSettings = ConsumerGroupSettings()
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL


class GroupCoordinator:
    """The groups; a step returns nothing, its effects are in `take_effects()`."""

    def __init__(
        self, settings: GroupSettings, *, topics: TopicView, new_id: Callable[[], str]
    ) -> None:
        self._settings = settings
        #: Where single groups of the consumer protocol have settings of their own.
        self.consumer_settings: Callable[[str], ConsumerGroupSettings] | None = None
        self._topics = topics
        self._new_id = new_id
        self._effects: list[Effect] = []
        self.groups: dict[str, Group | ConsumerGroup] = {}
        # (monotonic ms, group id). An entry may be too early, never too late: heartbeats only move
        # deadlines away, and `_schedule` adds an entry when one has moved closer.
        self._deadlines: list[tuple[int, str]] = []
        self._scheduled: dict[str, int] = {}

    def take_effects(self) -> list[Effect]:
        """What the steps since the last call want done, in order."""
        effects = self._effects[:]
        self._effects.clear()
        return effects

    # -------------------------------------------------------------------------------------- steps

    def join_group(self, request: JoinRequest, token: Token, now: Moment) -> None:
        """JoinGroup."""
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
            # The id is from another life of this group: the client has to ask for a new one.
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

    def sync_group(self, request: dict[str, Any], token: Token, now: Moment) -> None:
        """SyncGroup."""
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
        """Heartbeat; returns the error code of the answer."""
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
        """LeaveGroup; returns one error code a member."""
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
        """ConsumerGroupHeartbeat; responds with "error_code", and "error_message" of a refusal."""
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
            self._effects.append(
                Respond(token, {"error_code": error.code, "error_message": str(error)})
            )
            return
        self.groups[group.group_id] = group
        if not was_known or made:
            # Otherwise the deadlines have only moved away.
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
        """A group that nobody is in can go on with the other protocol."""
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
            # An instance is back with the other protocol: its place is what it was.
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
            # It has become classic when the member before this one left.
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
        """A member is gone for good; the group becomes classic where only such members are left."""
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
        if records:
            self._effects.append(Append(group.group_id, records, responses, is_awaited=False))
        else:
            self._effects += responses

    def commit_offsets(
        self,
        group_id: str,
        member: tuple[str, str | None, int],
        offsets: list[OffsetToCommit],
        token: Token,
        now: Moment,
    ) -> None:
        """OffsetCommit by `member` = (member id, instance id, generation).

        Responds to `token` with error codes by (topic, partition) under "codes".
        """
        member_id, instance_id, generation = member
        group = self.groups.get(group_id)
        error = errors.NONE
        if not group_id:
            error = errors.InvalidGroupId.code
        elif group is None and generation >= 0:
            error = errors.IllegalGeneration.code
        elif group is not None:
            error = group.check_commit(member_id, instance_id, generation, now)
        self._commit(Append(group_id, []), error, offsets, token, now)

    def commit_transactional_offsets(
        self,
        group_id: str,
        member: tuple[str, str | None, int],
        producer: tuple[int, int],
        offsets: list[OffsetToCommit],
        token: Token,
        now: Moment,
    ) -> None:
        """TxnOffsetCommit by `producer` = (id, epoch) on behalf of `member`.

        The offsets count when `end_transaction` says that the transaction is committed.
        """
        group = self.groups.get(group_id)
        error = errors.NONE
        if not group_id:
            error = errors.InvalidGroupId.code
        elif group is None and member[2] >= 0:
            error = errors.IllegalGeneration.code
        elif group is not None:
            error = group.check_transactional_commit(*member)
        self._commit(Append(group_id, [], producer=producer), error, offsets, token, now)

    def _commit(
        self,
        append: Append,
        error: int,
        offsets: list[OffsetToCommit],
        token: Token,
        now: Moment,
    ) -> None:
        group_id = append.group_id
        codes: dict[tuple[str, int], int] = {}
        for each in offsets:
            place = (each.topic, each.partition)
            codes[place] = error or each.error
            if codes[place]:
                continue
            if len(each.metadata) > self._settings.offset_metadata_bytes_max:
                codes[place] = errors.OffsetMetadataTooLarge.code
                continue
            committed = CommittedOffset(each.offset, each.leader_epoch, each.metadata, now.wall_ms)
            append.offsets[place] = committed
            append.records.append(
                (encode_offset_key(group_id, *place), encode_offset_value(committed))
            )
        response = Respond(token, {"codes": codes})
        if not append.records:
            self._effects.append(response)
            return
        self._group(group_id)
        append.responses.append(response)
        self._effects.append(append)

    def appended(self, append: Append, now: Moment) -> None:
        """The records of an effect are stored."""
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

    def end_transaction(
        self, producer_id: int, committed: bool, is_concerned: Callable[[str], bool]
    ) -> None:
        """A marker of a transaction is stored that concerns the groups of some partition."""
        for group in self.groups.values():
            if producer_id in group.pending_offsets and is_concerned(group.group_id):
                group.end_transaction(producer_id, committed)

    def append_failed(
        self, append: Append, now: Moment, code: int = errors.CoordinatorNotAvailable.code
    ) -> None:
        """The records of an effect could not be stored: nothing of it has happened."""
        for token, response in append.responses:
            if "codes" in response:
                failed: dict[str, Any] = {"codes": dict.fromkeys(response["codes"], code)}
            elif "member_epoch" in response:
                failed = {"error_code": code}
            else:
                failed = join_error(code, response.get("member_id", ""))
            self._effects.append(Respond(token, failed))
        group = self.groups.get(append.group_id)
        if isinstance(group, Group) and append.stabilises is not None:
            group.cannot_stabilise(append.stabilises, now)
            self._schedule(group)

    # ------------------------------------------------------------------------------ administration

    def delete_group(self, group_id: str, token: Token) -> None:
        """DeleteGroups, one group; responds with its "error_code"."""
        group = self.groups.get(group_id)
        code = errors.NONE
        if group is None:
            code = errors.GroupIdNotFound.code
        elif group.state is not GroupState.EMPTY:
            code = errors.NonEmptyGroup.code
        if group is None or code:
            self._effects.append(Respond(token, {"error_code": code}))
            return
        del self.groups[group_id]
        append = self._removal(group, list(group.offsets))
        append.records += _tombstones(group)
        append.is_awaited = False
        append.responses.append(Respond(token, {"error_code": errors.NONE}))
        self._effects.append(append)

    def delete_offsets(
        self, group_id: str, places: Iterable[tuple[str, int]], token: Token
    ) -> None:
        """OffsetDelete; responds with "error_code" and codes by (topic, partition)."""
        group = self.groups.get(group_id)
        if group is None:
            response = {"error_code": errors.GroupIdNotFound.code, "codes": {}}
            self._effects.append(Respond(token, response))
            return
        if isinstance(group, Group) and group.members and group.protocol_type != CONSUMER:
            # Only of consumers it is known where they say what they read.
            response = {"error_code": errors.NonEmptyGroup.code, "codes": {}}
            self._effects.append(Respond(token, response))
            return
        codes = {
            place: errors.GroupSubscribedToTopic.code
            if group.is_subscribed(place[0])
            else errors.NONE
            for place in places
        }
        removed = [place for place, code in codes.items() if not code and place in group.offsets]
        append = self._removal(group, removed)
        done = Respond(token, {"error_code": errors.NONE, "codes": codes})
        append.responses.append(done)
        self._effects.append(append if removed else done)

    def expire_offsets(self, now: Moment) -> None:
        """Remove offsets that nobody has needed for `offsets.retention.minutes`, and empty groups.

        The time runs from when the group became empty, or, for a group that never had members, from
        the commit. A group with members loses those of topics that nobody in it reads any more.
        """
        limit = now.wall_ms - self._settings.offsets_retention_ms
        for group in list(self.groups.values()):
            if group.state is GroupState.STABLE:
                self._expire_unread(group, limit)
            if group.state is not GroupState.EMPTY:
                continue
            expired = [
                place
                for place, committed in group.offsets.items()
                if max(
                    committed.commit_timestamp,
                    group.state_changed_ms if group.protocol_type else -1,
                )
                <= limit
            ]
            append = self._removal(group, expired)
            is_idle = not group.pending_offsets and not (
                isinstance(group, Group) and group.roster.pending
            )
            if len(expired) == len(group.offsets) and is_idle:
                if not expired and group.state_changed_ms > limit:
                    continue
                append.records += _tombstones(group)
                del self.groups[group.group_id]
            if append.records:
                logger.info("group %s: %d offsets expire", group.group_id, len(expired))
                self._effects.append(append)

    def _expire_unread(self, group: Group | ConsumerGroup, limit_ms: int) -> None:
        old = [
            place
            for place, committed in group.offsets.items()
            if committed.commit_timestamp <= limit_ms
        ]
        read = {topic for topic in {place[0] for place in old} if group.is_subscribed(topic)}
        unread = [place for place in old if place[0] not in read]
        if unread:
            logger.info("group %s: %d unread offsets expire", group.group_id, len(unread))
            self._effects.append(self._removal(group, unread))

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: its offsets mean nothing any more."""
        for group in self.groups.values():
            places = [place for place in group.offsets if place[0] == topic]
            if places:
                self._effects.append(self._removal(group, places))

    def _removal(self, group: Group | ConsumerGroup, places: list[tuple[str, int]]) -> Append:
        return Append(
            group.group_id,
            [(encode_offset_key(group.group_id, *place), None) for place in places],
            offsets=dict.fromkeys(places),
        )

    # --------------------------------------------------------------------------------------- time

    def next_deadline(self) -> int | None:
        """Monotonic ms at which `tick` should be called; None if nothing is waited for."""
        return self._deadlines[0][0] if self._deadlines else None

    def tick(self, now: Moment) -> None:
        """Do everything that is due."""
        while self._deadlines and self._deadlines[0][0] <= now.monotonic_ms:
            due, group_id = heapq.heappop(self._deadlines)
            if self._scheduled.get(group_id) != due:
                continue
            del self._scheduled[group_id]
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
        """Takes over the records of a partition of `__consumer_offsets`, in the log's order."""
        return GroupLoader(self._new_classic, self._new_consumer)

    def adopt(self, loader: GroupLoader, now: Moment) -> None:
        """All records of a partition have been taken over: its groups' sessions begin."""
        self.groups.update(loader.groups)
        for group in loader.groups.values():
            if isinstance(group, ConsumerGroup):
                group.finish_loading(now)
            self._schedule(group)

    def unload(self, is_concerned: Callable[[str], bool]) -> None:
        """Another broker coordinates some groups now: their members have to look for it."""
        for group_id in [each for each in self.groups if is_concerned(each)]:
            group = self.groups.pop(group_id)
            self._scheduled.pop(group_id, None)
            if isinstance(group, Group):
                group.refuse_all_waiting(errors.NotCoordinator.code)

    def _group(self, group_id: str) -> Group | ConsumerGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self._new_classic(group_id)
        return group

    def _new_classic(self, group_id: str) -> Group:
        return Group(
            group_id,
            self._effects,
            new_id=self._new_id,
            initial_rebalance_delay_ms=self._settings.initial_rebalance_delay_ms,
            size_max=self._settings.size_max,
        )

    def _new_consumer(self, group_id: str) -> ConsumerGroup:
        settings = self.consumer_settings
        return ConsumerGroup(
            group_id,
            self._settings.consumer if settings is None else settings(group_id),
            self._topics,
        )


def _tombstones(group: Group | ConsumerGroup) -> list[tuple[bytes, bytes | None]]:
    """A group is gone."""
    if isinstance(group, ConsumerGroup):
        return consumer_group_records.group_tombstones(group.group_id)
    return [(encode_group_key(group.group_id), None)]
