"""Offsets as requests name them, and what is answered about a change (KIP-875)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from consumers.connect.herder.answers import ConnectorOffset, Message
from consumers.connect.herder.refusals import BadRequest
from consumers.connect.plugins.sink_task import TopicPartition

TOPIC: Final = "kafka_topic"
PARTITION: Final = "kafka_partition"
OFFSET: Final = "kafka_offset"


def sink_offset(partition: TopicPartition, offset: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a committed offset as answers have it."""
    place = {TOPIC: partition.topic, PARTITION: partition.partition}
    return place, {OFFSET: offset}


def parse_sink_offsets(
    offsets: Sequence[ConnectorOffset],
) -> dict[TopicPartition, int | None]:
    """Return the offsets that a request sets, None for those that it resets.

    Raises BadRequest.
    """
    parsed: dict[TopicPartition, int | None] = {}
    for each in offsets:
        place = each.partition
        if place is None:
            raise BadRequest("The partition for a sink connector offset cannot be null or missing")
        if TOPIC not in place or PARTITION not in place:
            raise BadRequest(
                "The partition for a sink connector offset must contain the keys "
                f"'{TOPIC}' and '{PARTITION}'"
            )
        if place[TOPIC] is None:
            raise BadRequest("Kafka topic names must be valid strings and may not be null")
        if place[PARTITION] is None:
            raise BadRequest("Kafka partitions must be valid numbers and may not be null")
        number = _integer(
            place[PARTITION],
            "Failed to parse the following Kafka partition value in the provided offsets: "
            f"'{place[PARTITION]}'. Partition values for sink connectors need to be integers.",
            bits=32,
        )
        partition = TopicPartition(str(place[TOPIC]), number)
        if each.offset is None:
            parsed[partition] = None
            continue
        if OFFSET not in each.offset:
            raise BadRequest(
                "The offset for a sink connector should either be null or contain the key "
                f"'{OFFSET}'"
            )
        value = each.offset[OFFSET]
        parsed[partition] = _integer(
            value,
            "Failed to parse the following Kafka offset value in the provided offsets: "
            f"'{value}'. Offset values for sink connectors need to be integers.",
            bits=64,
        )
    return parsed


def _integer(value: Any, message: str, *, bits: int) -> int:
    """Return a number that may be written as a text; raises BadRequest."""
    text = str(value)
    try:
        number = int(text) if text.isascii() and not isinstance(value, bool) else None
    except ValueError:
        number = None
    if number is None or not 0 <= number < 1 << (bits - 1):
        raise BadRequest(message)
    return number


def source_offsets(
    offsets: Sequence[ConnectorOffset],
) -> list[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
    """Return the offsets that a request sets; raises BadRequest."""
    pairs: list[tuple[Mapping[str, Any], Mapping[str, Any] | None]] = []
    for each in offsets:
        if each.partition is None:
            text = "The partition for a source connector offset cannot be null or missing"
            raise BadRequest(text)
        pairs.append((each.partition, each.offset))
    return pairs


def modified(*, is_reset: bool, is_complete: bool) -> Message:
    """Return what is answered; `is_complete` is what the connector has returned."""
    word = "reset" if is_reset else "altered"
    if is_complete:
        return Message(f"The offsets for this connector have been {word} successfully")
    return Message(
        f"The Connect framework-managed offsets for this connector have been {word} successfully. "
        "However, if this connector manages offsets externally, they will need to be manually "
        f"{word} in the system that the connector uses."
    )


def still_running(connector: str, *, is_reset: bool) -> str:
    """Return the message about a group that has members although the connector is stopped."""
    word = "reset" if is_reset else "alter"
    return (
        f"Failed to {word} consumer group offsets for connector {connector} either because its "
        "tasks haven't stopped completely yet or the connector was resumed before the request to "
        f"{word} its offsets could be successfully completed. If the connector is in a stopped "
        "state, this operation can be safely retried. If it doesn't eventually succeed, the "
        "Connect cluster may need to be restarted to get rid of the zombie sink tasks."
    )
