"""Loading of groups from the records of `__consumer_offsets`, in log order."""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker_core.coordinator.effects import Moment
from broker_core.coordinator.groups import consumer_group_records
from broker_core.coordinator.groups.consumer_group import ConsumerGroup
from broker_core.coordinator.groups.consumer_group_records import ConsumerGroupKey
from broker_core.coordinator.groups.group import Group
from broker_core.coordinator.offsets import (
    GroupKey,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from broker_core.coordinator.stored import stored_version
from broker_core.protocol.errors import RemoteProtocolError

logger = logging.getLogger(__name__)


class GroupLoader:
    """Collects the groups of one partition; they are not visible before it is complete."""

    def __init__(
        self,
        new_classic: Callable[[str], Group],
        new_consumer: Callable[[str], ConsumerGroup],
    ) -> None:
        self._groups: dict[str, Group | ConsumerGroup] = {}
        self._new_classic = new_classic
        self._new_consumer = new_consumer

    @property
    def groups(self) -> dict[str, Group | ConsumerGroup]:
        """The groups read so far."""
        return self._groups

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply a transaction marker of the partition."""
        for group in self._groups.values():
            group.end_transaction(producer_id, committed)

    def load(self, key: bytes, value: bytes | None, now: Moment, producer_id: int | None) -> None:
        """Apply one record; skip one that cannot be read.

        `producer_id` is that of the transaction that commits or aborts the record.
        """
        try:
            if stored_version(key) in consumer_group_records.KINDS:
                self._load_consumer_group(consumer_group_records.decode_key(key), value)
                return
            parsed = decode_key(key)
            if isinstance(parsed, OffsetKey):
                self._load_offset(parsed, value, producer_id)
            elif isinstance(parsed, GroupKey):
                self._load_group(parsed.group_id, value, now)
        except RemoteProtocolError as error:
            logger.error("a record of __consumer_offsets is skipped: %s", error)

    def _load_offset(self, key: OffsetKey, value: bytes | None, producer_id: int | None) -> None:
        place = (key.topic, key.partition)
        group = self._groups.get(key.group_id)
        if value is None:
            if group is not None:
                group.offsets.pop(place, None)
            return
        if group is None:
            group = self._groups[key.group_id] = self._new_classic(key.group_id)
        offsets = group.offsets
        if producer_id is not None:
            offsets = group.pending_offsets.setdefault(producer_id, {})
        offsets[place] = decode_offset_value(value)

    def _load_group(self, group_id: str, value: bytes | None, now: Moment) -> None:
        group = self._groups.get(group_id)
        if value is not None:
            classic = group if isinstance(group, Group) else self._new_classic(group_id)
            if group is not None:
                classic.take_offsets(group)
            classic.restore(decode_group_value(value), now)
            self._groups[group_id] = classic
        elif isinstance(group, Group) and not group.has_offsets:
            # Otherwise the group continues with the other protocol.
            del self._groups[group_id]

    def _load_consumer_group(self, key: ConsumerGroupKey, value: bytes | None) -> None:
        group = self._groups.get(key.group_id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            new = self._new_consumer(key.group_id)
            if group is not None:
                new.take_offsets(group)
            group = self._groups[key.group_id] = new
        if key.kind == consumer_group_records.GROUP and value is None:
            if not group.has_offsets:
                del self._groups[key.group_id]
            return
        group.restore(key, value)
