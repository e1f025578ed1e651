"""Placement of the replicas of new partitions on brokers.

Leaders are spread evenly over the brokers, and followers over the racks: no two replicas are in one
rack while another rack has none (KIP-36; Kafka's StripedReplicaPlacer).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from itertools import cycle, islice

from broker_core.cluster.image import BrokerImage
from broker_core.errors import InvalidReplicationFactor


def _by_rack(brokers: Iterable[BrokerImage], randomness: random.Random) -> list[list[int]]:
    racks: dict[str, list[int]] = defaultdict(list)
    for broker in sorted(brokers, key=lambda each: each.id):
        racks[broker.rack or ""].append(broker.id)
    shuffled = [racks[name] for name in sorted(racks)]
    for rack in shuffled:
        randomness.shuffle(rack)
    randomness.shuffle(shuffled)
    return shuffled


def _striped(racks: list[list[int]]) -> list[int]:
    """Take one broker of each rack, then another of each, and so on."""
    longest = max((len(rack) for rack in racks), default=0)
    return [rack[place] for place in range(longest) for rack in racks if place < len(rack)]


def place_replicas(
    brokers: Iterable[BrokerImage],
    partitions: int,
    replication_factor: int,
    randomness: random.Random,
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, the preferred leader first.

    Fenced brokers get replicas only if there are too few others, and are never preferred leaders.
    Raises InvalidReplicationFactor.
    """
    known = list(brokers)
    active = [broker for broker in known if broker.is_active]
    fenced = [broker for broker in known if broker.fenced]
    usable = len(active) + len(fenced)
    if replication_factor > usable or not active:
        raise InvalidReplicationFactor(
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{usable if active else 0} broker(s) are registered."
        )
    ring = _striped(_by_rack(active, randomness))
    others = _striped(_by_rack(fenced, randomness))
    rack_of = {broker.id: broker.rack or "" for broker in known}
    start = randomness.randrange(len(ring))
    # The choices repeat when each broker has led with each shift of the others.
    period = len(ring) * max(len(ring) - 1, 1)
    placed = []
    for number in range(min(partitions, period)):
        first = (start + number) % len(ring)
        # Each turn of the ring uses other followers, so that the load of a failed broker is spread
        # over all others.
        turn = number // len(ring)
        rest = ring[first + 1 :] + ring[:first]
        shift = turn % len(rest) if rest else 0
        placed.append(
            _choose(ring[first], rest[shift:] + rest[:shift] + others, replication_factor, rack_of)
        )
    return list(islice(cycle(placed), partitions))


def _choose(
    leader: int, candidates: list[int], count: int, rack_of: dict[int, str]
) -> tuple[int, ...]:
    chosen = [leader]
    used = {rack_of[leader]}
    left = list(candidates)
    while len(chosen) < count:
        place = next((i for i, each in enumerate(left) if rack_of[each] not in used), None)
        if place is None:
            used.clear()
            place = 0
        chosen.append(left.pop(place))
        used.add(rack_of[chosen[-1]])
    return tuple(chosen)
