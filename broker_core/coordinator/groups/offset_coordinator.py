"""Commit, expiry and deletion of the offsets of all groups of one broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from broker_core import errors
from broker_core.coordinator.effects import Append, Codes, Effect, Moment, Respond, Token
from broker_core.coordinator.groups import consumer_group_records
from broker_core.coordinator.groups.consumer_group import ConsumerGroup, ConsumerGroupSettings
from broker_core.coordinator.groups.group import Group
from broker_core.coordinator.groups.migration_policy import MigrationPolicy
from broker_core.coordinator.groups.states import GroupState
from broker_core.coordinator.groups.subscription import CONSUMER
from broker_core.coordinator.groups.topic_view import TopicView
from broker_core.coordinator.offsets import (
    CommittedOffset,
    OffsetToCommit,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
)

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


class OffsetCoordinator:
    """The part of GroupCoordinator that handles offsets, for groups of both protocols."""

    def __init__(
        self, settings: GroupSettings, *, topics: TopicView, new_id: Callable[[], str]
    ) -> None:
        self._settings = settings
        #: Returns the settings of a group, if single groups can have their own.
        self.consumer_settings: Callable[[str], ConsumerGroupSettings] | None = None
        self._topics = topics
        self._new_id = new_id
        self._effects: list[Effect] = []
        self.groups: dict[str, Group | ConsumerGroup] = {}

    def take_effects(self) -> list[Effect]:
        """Return and clear the effects of the steps since the last call, in order."""
        effects = self._effects[:]
        self._effects.clear()
        return effects

    # ------------------------------------------------------------------------------------ offsets

    def commit_offsets(
        self,
        group_id: str,
        member: tuple[str, str | None, int],
        offsets: list[OffsetToCommit],
        token: Token,
        now: Moment,
    ) -> None:
        """Handle OffsetCommit of `member` = (member id, instance id, generation).

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
        """Handle TxnOffsetCommit of `producer` = (id, epoch) on behalf of `member`.

        The offsets take effect when `end_transaction` commits the transaction.
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
        response = Respond(token, Codes(error_code=errors.NONE, codes=codes))
        if not append.records:
            self._effects.append(response)
            return
        self._group(group_id)
        append.responses.append(response)
        self._effects.append(append)

    def end_transaction(
        self, producer_id: int, committed: bool, is_concerned: Callable[[str], bool]
    ) -> None:
        """Apply a stored transaction marker to the groups for which `is_concerned` is true."""
        for group in self.groups.values():
            if producer_id in group.pending_offsets and is_concerned(group.group_id):
                group.end_transaction(producer_id, committed)

    # ------------------------------------------------------------------------------ administration

    def delete_group(self, group_id: str, token: Token) -> None:
        """Handle DeleteGroups for one group; responds with its "error_code"."""
        group = self.groups.get(group_id)
        code = errors.NONE
        if group is None:
            code = errors.GroupIdNotFound.code
        elif group.state is not GroupState.EMPTY:
            code = errors.NonEmptyGroup.code
        if group is None or code:
            self._effects.append(Respond(token, Codes(error_code=code, codes={})))
            return
        del self.groups[group_id]
        append = self._removal(group, list(group.offsets))
        append.records += _tombstones(group)
        append.is_awaited = False
        append.responses.append(Respond(token, Codes(error_code=errors.NONE, codes={})))
        self._effects.append(append)

    def delete_offsets(
        self, group_id: str, places: Iterable[tuple[str, int]], token: Token
    ) -> None:
        """Handle OffsetDelete; responds with "error_code" and codes by (topic, partition)."""
        group = self.groups.get(group_id)
        if group is None:
            missing = Codes(error_code=errors.GroupIdNotFound.code, codes={})
            self._effects.append(Respond(token, missing))
            return
        if isinstance(group, Group) and group.members and group.protocol_type != CONSUMER:
            # Only the metadata of consumers has a known format that tells their topics.
            refused = Codes(error_code=errors.NonEmptyGroup.code, codes={})
            self._effects.append(Respond(token, refused))
            return
        codes = {
            place: errors.GroupSubscribedToTopic.code
            if group.is_subscribed(place[0])
            else errors.NONE
            for place in places
        }
        removed = [place for place, code in codes.items() if not code and place in group.offsets]
        append = self._removal(group, removed)
        done = Respond(token, Codes(error_code=errors.NONE, codes=codes))
        append.responses.append(done)
        self._effects.append(append if removed else done)

    def expire_offsets(self, now: Moment) -> None:
        """Remove offsets that are unused for `offsets.retention.minutes`, and empty groups.

        The time runs from when the group became empty; for a group that never had members, from the
        commit. A group with members loses the offsets of topics that no member subscribes to.
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
        """Remove the offsets of a deleted topic."""
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

    # ------------------------------------------------------------------------------------- groups

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
    """Return the tombstones of a group's metadata."""
    if isinstance(group, ConsumerGroup):
        return consumer_group_records.group_tombstones(group.group_id)
    return [(encode_group_key(group.group_id), None)]
