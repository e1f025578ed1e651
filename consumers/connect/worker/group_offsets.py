"""The offsets of a sink connector's group: read, set, reset (KIP-875). All of it blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.herder.offset_requests import still_running
from consumers.connect.plugins.sink_task import TopicPartition
from waylog.kafka.errors import error_text

_REQUEST_S: Final = 30.0
#: Errors of a group that has members.
_HAS_MEMBERS: Final = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
)


class GroupOffsets:
    """The offsets of one connector's group."""

    def __init__(self, connector: str, group: str, admin: Mapping[str, Any]) -> None:
        """`admin` has the properties of an admin client."""
        self._connector: Final = connector
        self._group: Final = group
        self._admin: Final = AdminClient(dict(admin))

    def read(self) -> dict[TopicPartition, int]:
        """Return the committed offsets; raises ConnectException."""
        try:
            answers = self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self._group)], request_timeout=_REQUEST_S
            )
            found = answers[self._group].result().topic_partitions
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return {}
            raise ConnectException(
                "Failed to retrieve consumer group offsets for sink connector "
                f"{self._connector}: {error_text(error)}"
            ) from error
        return {
            TopicPartition(each.topic, each.partition): each.offset
            for each in found
            if each.offset >= 0
        }

    def reset(self) -> None:
        """Forget all offsets; raises ConnectException."""
        try:
            self._delete()
        except KafkaException as error:
            raise self._failed(error, is_reset=True) from error

    def alter(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Set offsets, None to forget one; raises ConnectException.

        librdkafka cannot forget single offsets: then all are, and those that stay are set again.
        """
        wanted = {each: offset for each, offset in offsets.items() if offset is not None}
        if len(wanted) < len(offsets):
            wanted = {
                each: end for each, end in self.read().items() if each not in offsets
            } | wanted
        try:
            if any(offset is None for offset in offsets.values()):
                self._delete()
            if wanted:
                self._set(wanted)
        except KafkaException as error:
            raise self._failed(error, is_reset=False) from error

    def _set(self, offsets: Mapping[TopicPartition, int]) -> None:
        partitions = [
            confluent_kafka.TopicPartition(*each, offset) for each, offset in offsets.items()
        ]
        answers = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._group, partitions)], request_timeout=_REQUEST_S
        )
        for each in answers[self._group].result().topic_partitions:
            if each.error is not None:
                raise KafkaException(each.error)

    def _delete(self) -> None:
        try:
            self._admin.delete_consumer_groups([self._group], request_timeout=_REQUEST_S)[
                self._group
            ].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise

    def _failed(self, error: KafkaException, *, is_reset: bool) -> ConnectException:
        if error.args[0].code() in _HAS_MEMBERS:
            return ConnectException(still_running(self._connector, is_reset=is_reset))
        word = "reset" if is_reset else "alter"
        return ConnectException(
            f"Failed to {word} consumer group offsets for connector {self._connector}: "
            f"{error_text(error)}"
        )
