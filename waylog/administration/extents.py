"""First offsets and ends of many partitions, asked for at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from waylog.kafka.protocol.cluster_requests import Place

_REQUEST_S: Final = 10.0
_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Extent(NamedTuple):
    """The offset of the first record of a partition, and the one after the last."""

    first: int
    end: int


def partition_ends(
    admin: AdminClient, places: Iterable[Place], *, timeout_s: float = _REQUEST_S
) -> dict[Place, int]:
    """Return the ends of those partitions that are led; raises KafkaException if none answers."""
    return _offsets(admin, places, _LATEST, timeout_s)


def partition_extents(
    admin: AdminClient, places: Iterable[Place], *, timeout_s: float = _REQUEST_S
) -> dict[Place, Extent]:
    """Return first offset and end of those partitions that are led; raises KafkaException."""
    wanted = list(places)
    firsts = _offsets(admin, wanted, _EARLIEST, timeout_s)
    ends = _offsets(admin, wanted, _LATEST, timeout_s)
    return {place: Extent(first, ends[place]) for place, first in firsts.items() if place in ends}


def _offsets(
    admin: AdminClient, places: Iterable[Place], which: OffsetSpec, timeout_s: float
) -> dict[Place, int]:
    asked = {TopicPartition(*place): which for place in places}
    if not asked:
        return {}
    answers = admin.list_offsets(
        asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=timeout_s
    )
    found: dict[Place, int] = {}
    failure: KafkaException | None = None
    for each, answer in answers.items():
        try:
            found[each.topic, each.partition] = answer.result(timeout_s).offset
        except KafkaException as error:
            failure = error
    if failure is not None and not found:
        raise failure
    return found
