"""Throttles the replication of replicas while they are moved (KIP-73)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from waylog.administration.cluster_admin import REQUEST_S

_SIDES: Final = ("leader", "follower")

#: The present and the new replicas of each partition, by topic and number.
Moves = Mapping[tuple[str, int], tuple[Sequence[int], Sequence[int]]]


@contextmanager
def throttled(admin: AdminClient, moves: Moves, bytes_per_s: int) -> Iterator[None]:
    """Throttle `moves` to this rate on each broker within the context; raises
    KafkaException."""
    brokers = sorted({each for before, after in moves.values() for each in (*before, *after)})
    topics: dict[str, dict[str, list[str]]] = {}
    for (topic, index), (before, after) in moves.items():
        sides = topics.setdefault(topic, {side: [] for side in _SIDES})
        sides["leader"] += [f"{index}:{each}" for each in before]
        sides["follower"] += [f"{index}:{each}" for each in after if each not in before]
    settings = [
        (
            ConfigResource.Type.BROKER,
            str(broker),
            {f"{side}.replication.throttled.rate": str(bytes_per_s) for side in _SIDES},
        )
        for broker in brokers
    ] + [
        (
            ConfigResource.Type.TOPIC,
            topic,
            {f"{side}.replication.throttled.replicas": ",".join(sides[side]) for side in _SIDES},
        )
        for topic, sides in topics.items()
    ]
    try:
        for kind, name, wanted in settings:
            _alter(admin, kind, name, wanted)
        yield
    finally:
        failure: KafkaException | None = None
        for kind, name, wanted in settings:
            try:
                _alter(admin, kind, name, dict.fromkeys(wanted))
            except KafkaException as error:
                # The others are taken back all the same.
                failure = failure or error
        if failure is not None:
            raise failure


def _alter(admin: AdminClient, kind: Any, name: str, wanted: Mapping[str, str | None]) -> None:
    """Set the settings of one resource, and delete those that are None."""
    changes = [
        ConfigEntry(
            setting,
            value,
            incremental_operation=(
                AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            ),
        )
        for setting, value in wanted.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=changes)
    # One at a time: settings of a broker go to that broker.
    admin.incremental_alter_configs([resource], request_timeout=REQUEST_S)[resource].result()
