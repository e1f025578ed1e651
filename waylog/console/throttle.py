"""Throttles the replication of replicas while they are moved (KIP-73)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from kafka import KafkaAdminClient
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType

_SIDES: Final = ("leader", "follower")

#: The present and the new replicas of each partition, by topic and number.
Moves = Mapping[tuple[str, int], tuple[Sequence[int], Sequence[int]]]


@contextmanager
def throttled(admin: KafkaAdminClient, moves: Moves, bytes_per_s: int) -> Iterator[None]:
    """Throttle `moves` to this rate on each broker within the context; raises KafkaError."""
    brokers = sorted({each for before, after in moves.values() for each in (*before, *after)})
    topics: dict[str, dict[str, list[str]]] = {}
    for (topic, index), (before, after) in moves.items():
        sides = topics.setdefault(topic, {side: [] for side in _SIDES})
        sides["leader"] += [f"{index}:{each}" for each in before]
        sides["follower"] += [f"{index}:{each}" for each in after if each not in before]
    settings = [
        (
            ConfigResourceType.BROKER,
            str(broker),
            {f"{side}.replication.throttled.rate": str(bytes_per_s) for side in _SIDES},
        )
        for broker in brokers
    ] + [
        (
            ConfigResourceType.TOPIC,
            topic,
            {f"{side}.replication.throttled.replicas": ",".join(sides[side]) for side in _SIDES},
        )
        for topic, sides in topics.items()
    ]
    try:
        admin.alter_configs(
            [ConfigResource(kind, name, configs) for kind, name, configs in settings]
        )
        yield
    finally:
        admin.alter_configs(
            [
                ConfigResource(kind, name, dict.fromkeys(configs, (AlterConfigOp.DELETE, None)))
                for kind, name, configs in settings
            ]
        )
