"""Produce: append record batches as they came; answer when they are as durable as was asked for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from broker_core import errors
from broker_core.server.request import Request
from broker_core.server.topics import Topic

if TYPE_CHECKING:
    from broker_core.server.runtime import Broker

logger = logging.getLogger(__name__)

_ACKS_ALL: Final = -1
_ACKS_NONE: Final = 0
_TOPIC_IDS_FROM: Final = 13


class _Acknowledgement:
    """Answers a request when all its partitions are durable."""

    __slots__ = ("_request", "_response", "waiting_for")

    def __init__(self, request: Request, response: dict[str, Any]) -> None:
        self._request = request
        self._response = response
        # One more than partitions until all of them have been appended.
        self.waiting_for = 1

    def one_less(self) -> None:
        """A partition is done."""
        self.waiting_for -= 1
        if not self.waiting_for:
            self._request.reply(self._response)


class _PartitionWait:
    """One partition's share in the answer; see AppendWaiter."""

    __slots__ = ("_acknowledgement", "_result")

    def __init__(self, acknowledgement: _Acknowledgement, result: dict[str, Any]) -> None:
        self._acknowledgement = acknowledgement
        self._result = result

    def durable(self) -> None:
        """See AppendWaiter."""
        self._acknowledgement.one_less()

    def failed(self, code: int) -> None:
        """See AppendWaiter."""
        self._result["error_code"] = code
        self._result["base_offset"] = -1
        self._acknowledgement.one_less()


def handle(broker: Broker, request: Request) -> None:
    """Produce."""
    body = request.body
    acks = body["acks"]
    response: dict[str, Any] = {"responses": []}
    acknowledgement = _Acknowledgement(request, response)
    failed = False
    for each in body["topic_data"]:
        topic, error = _find(broker, request, each)
        results: list[dict[str, Any]] = []
        response["responses"].append(
            {"name": each["name"], "topic_id": each["topic_id"], "partition_responses": results}
        )
        for part in each["partition_data"]:
            result: dict[str, Any] = {"index": part["index"], "base_offset": -1}
            results.append(result)
            try:
                if error is not None:
                    raise error
                assert topic is not None
                _append(broker, topic, part, acks, result, acknowledgement)
            except errors.BrokerError as refusal:
                failed = True
                result["error_code"] = refusal.code
                result["error_message"] = str(refusal)
                logger.info(
                    "produce to %s-%d by %s is refused: %s",
                    each["name"],
                    part["index"],
                    request.client_id,
                    refusal,
                )
    if acks != _ACKS_NONE:
        acknowledgement.one_less()
    elif failed:
        # There is no answer that could say so; the client notices a closed connection.
        request.disconnect()
    else:
        request.reply_nothing()


def _find(
    broker: Broker, request: Request, each: dict[str, Any]
) -> tuple[Topic | None, errors.BrokerError | None]:
    acks = request.body["acks"]
    if acks not in {_ACKS_ALL, _ACKS_NONE, 1}:
        return None, errors.InvalidRequiredAcks(f"acks={acks}")
    if request.body["transactional_id"] is not None:
        return None, errors.InvalidRequest("this broker has no transactions")
    if request.version >= _TOPIC_IDS_FROM:
        topic = broker.topics.by_id(each["topic_id"])
        if topic is None:
            return None, errors.UnknownTopicId()
    else:
        topic = broker.topics.get(each["name"])
        if topic is None:
            return None, errors.UnknownTopicOrPartition()
    if topic.is_internal:
        return None, errors.InvalidTopic(f"{topic.name} is written by the broker alone")
    if acks == _ACKS_ALL and topic.config.min_insync_replicas > 1:
        return None, errors.NotEnoughReplicas(
            f"min.insync.replicas={topic.config.min_insync_replicas}, but there is one broker"
        )
    return topic, None


def _append(
    broker: Broker,
    topic: Topic,
    part: dict[str, Any],
    acks: int,
    result: dict[str, Any],
    acknowledgement: _Acknowledgement,
) -> None:
    index = part["index"]
    if not 0 <= index < len(topic.partitions):
        raise errors.UnknownTopicOrPartition()
    records = part["records"]
    if not records:
        raise errors.InvalidRecord("a produce request without records")
    partition = topic.partitions[index]
    appended = partition.append(records, broker.now_ms())
    result["error_code"] = errors.NONE
    result["base_offset"] = appended.base_offset
    result["log_append_time_ms"] = appended.log_append_time_ms
    result["log_start_offset"] = appended.log_start_offset
    if not partition.acknowledges_after_flush:
        partition.advance()
        broker.appended(partition)
        return
    if acks == _ACKS_ALL:
        acknowledgement.waiting_for += 1
        partition.wait_durable(_PartitionWait(acknowledgement, result), appended.last_offset + 1)
    broker.flusher.request(partition)
