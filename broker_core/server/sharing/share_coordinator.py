"""The share coordinator: stores the state of share partitions (KIP-932).

A share partition is a partition as one share group reads it. The partition's leader asks the share
coordinator for the state and writes changes to it. The states are in `__share_group_state`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

from broker_core import errors
from broker_core.coordinator.sharing.share_partition import check_batches
from broker_core.coordinator.sharing.share_records import (
    STATE_TOPIC,
    SharePartitionKey,
    StoredState,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from broker_core.environment import Clock
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.batch_header import BatchHeader
from broker_core.protocol.errors import LocalProtocolError
from broker_core.server.coordination.coordinator_shards import CoordinatorShards
from broker_core.server.coordination.groups import Stored, StoreWait, coordinator_error
from broker_core.server.coordination.internal_topic import InternalTopic, read_back
from broker_core.server.partitions.flusher import Flusher
from broker_core.server.partitions.partition import Partition
from broker_core.server.partitions.topics import TopicRegistry
from waylog.process.background import failure_ends_process

logger = logging.getLogger(__name__)

#: Called with an error code and the stored state, None if there is none.
Read = Callable[[int, StoredState | None], None]

#: Start offset of a share partition that its group has not begun to read.
NO_OFFSET: Final = -1


class ShareCoordinator:
    """The states in the partitions of `__share_group_state` that this broker leads."""

    def __init__(self, topics: TopicRegistry, flusher: Flusher, clock: Clock) -> None:
        self._topics = topics
        self._flusher = flusher
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._states: dict[SharePartitionKey, StoredState] = {}
        self._topic = InternalTopic(topics, STATE_TOPIC)
        #: The share partitions whose state is stored here.
        self.shards = CoordinatorShards(self._topic, self._load, self._unload)

    # ------------------------------------------------------------------------------ start and end

    def _load(self, partition: Partition) -> Iterator[int]:
        def take(header: BatchHeader, key: bytes, value: bytes | None) -> None:
            place = decode_key(key)
            if place is None:
                return
            if value is None:
                self._states.pop(place, None)
            else:
                self._states[place] = decode_value(value)

        # With an older state in place of a damaged one, some records are delivered again.
        yield from read_back(partition, take, lambda producer_id, committed: None)
        for place in [each for each in self._states if self._topics.by_id(each.topic_id) is None]:
            if self._topic.index_of(_key(place)) == partition.index:
                logger.info("%s: its topic is gone", place)
                del self._states[place]

    def _unload(self, index: int) -> None:
        for place in [each for each in self._states if self._topic.index_of(_key(each)) == index]:
            del self._states[place]

    def close(self) -> None:
        """Stop loading."""
        self.shards.close()

    # ------------------------------------------------------------------------------------ reading

    def place_of(self, place: SharePartitionKey) -> tuple[str, int]:
        """Return the partition that holds a state; raises CoordinatorNotAvailable."""
        return self._topic.name, self._topic.index_of(_key(place))

    def places(self) -> list[SharePartitionKey]:
        """Return all share partitions whose state is known here."""
        return list(self._states)

    def find(self, place: SharePartitionKey) -> tuple[int, StoredState | None]:
        """Return an error code, and a share partition's state or None."""
        code = self.shards.refusal(_key(place))
        return code, None if code else self._states.get(place)

    def read(self, place: SharePartitionKey, leader_epoch: int, read: Read) -> None:
        """As `find`, for the partition's leader; earlier leaders can no longer write."""
        code, state = self.find(place)
        if not code and state is not None and leader_epoch < state.leader_epoch:
            code = errors.FencedLeaderEpoch.code
        if code or state is None or leader_epoch == state.leader_epoch:
            read(code, None if code else state)
            return
        state = state._replace(leader_epoch=leader_epoch)
        self._store(place, state, lambda code: read(code, None if code else state))

    # ------------------------------------------------------------------------------------ storing

    def write(self, place: SharePartitionKey, state: StoredState, stored: Stored) -> None:
        """Store the state that a partition's leader sends."""
        code, known = self.find(place)
        try:
            check_batches(state.start_offset, state.batches)
        except errors.InvalidRequest as error:
            code = code or error.code
        if not code and known is not None:
            if state.leader_epoch < known.leader_epoch:
                code = errors.FencedLeaderEpoch.code
            elif state.state_epoch != known.state_epoch:
                code = errors.FencedStateEpoch.code
        if code:
            stored(code)
        else:
            self._store(place, state, stored)

    def initialize(
        self, place: SharePartitionKey, state_epoch: int, start_offset: int, stored: Stored
    ) -> None:
        """Set a start offset; writes with an earlier state epoch are refused from now on."""
        code, known = self.find(place)
        if not code and known is not None and state_epoch < known.state_epoch:
            code = errors.FencedStateEpoch.code
        if code:
            stored(code)
            return
        leader_epoch = 0 if known is None else known.leader_epoch
        self._store(place, StoredState(start_offset, [], state_epoch, leader_epoch), stored)

    def delete(self, place: SharePartitionKey, stored: Stored) -> None:
        """Delete the state of a share partition."""
        code, known = self.find(place)
        if code or known is None:
            stored(code)
        else:
            self._store(place, None, stored)

    def forget_topic(self, topic_id: bytes) -> None:
        """Delete the states of a deleted topic."""
        for place in [each for each in self._states if each.topic_id == topic_id]:
            self._store(place, None, lambda code: None)

    def _store(self, place: SharePartitionKey, state: StoredState | None, stored: Stored) -> None:
        with failure_ends_process(self._loop, "the share coordinator"):
            now_ms = self._clock.now_ms()
            try:
                value = None if state is None else encode_value(state, now_ms)
                partition = self._topic.partition_of(_key(place))
                partition.check_in_sync()
                batch = build_batch([(now_ms, encode_key(place), value, ())])
                result = partition.append(batch, now_ms)
            except errors.BrokerError as error:
                logger.error("share group %s cannot be stored: %s", place.group_id, error)
                stored(coordinator_error(error.code))
                return
            except (LocalProtocolError, OverflowError):
                # No client can cause it; if one could, it must not end the broker.
                logger.exception("share group %s cannot be encoded", place.group_id)
                stored(errors.UnknownServerError.code)
                return
            if state is None:
                self._states.pop(place, None)
            else:
                self._states[place] = state
            self._flusher.wait_durable(partition, StoreWait(stored), result.last_offset + 1)


def _key(place: SharePartitionKey) -> str:
    return f"{place.group_id}:{place.topic_id.hex()}:{place.partition}"
