"""Plans which replicas to move when partitions are spread over brokers, with few moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from waylog.cli import CommandError
from waylog.kafka.protocol.cluster_requests import PartitionState, Place


def plan_moves(
    present: Mapping[Place, Sequence[int]],
    brokers: Sequence[int],
    replication_factor: int | None = None,
) -> dict[Place, list[int]]:
    """Return the partitions whose replicas change, with the new replicas, preferred leader first.

    A replica stays where it is unless its broker is not among `brokers` or has more than its share.
    Leaders are spread likewise.
    """
    load = dict.fromkeys(brokers, 0)
    chosen: dict[Place, list[int]] = {}
    for place in sorted(present):
        wanted = min(replication_factor or len(present[place]), len(brokers))
        chosen[place] = [each for each in present[place] if each in load][:wanted]
        for broker in chosen[place]:
            load[broker] += 1
    for place, replicas in chosen.items():
        wanted = min(replication_factor or len(present[place]), len(brokers))
        while len(replicas) < wanted:
            least = min((each for each in load if each not in replicas), key=load.__getitem__)
            replicas.append(least)
            load[least] += 1
    _level(chosen, load)
    _spread_leaders(chosen)
    return {place: each for place, each in chosen.items() if each != list(present[place])}


def check_moves(
    running: Iterable[int],
    moves: Mapping[Place, Sequence[int]],
    partitions: Mapping[Place, PartitionState],
) -> None:
    """Raise CommandError unless each replica is on a known broker, and no two on the same."""
    present = set(running)
    known = present.union(*(each.replicas for each in partitions.values()))
    for (topic, index), replicas in moves.items():
        named = ",".join(map(str, replicas))
        if not replicas:
            raise CommandError(f"{topic}:{index}: no broker is named")
        if unknown := sorted(set(replicas) - known):
            raise CommandError(
                f"{topic}:{index}: there is no broker {','.join(map(str, unknown))}; running are "
                f"{','.join(map(str, sorted(present)))}"
            )
        if len(set(replicas)) < len(replicas):
            raise CommandError(f"{topic}:{index}: {named} names a broker twice")


def _level(chosen: dict[Place, list[int]], load: dict[int, int]) -> None:
    """Move replicas from the fullest to the emptiest broker until counts differ by at most one."""
    while True:
        most = sorted(load, key=load.__getitem__, reverse=True)
        move = next(
            (
                (place, heavy, light)
                for heavy in most
                for light in reversed(most)
                if load[heavy] > load[light] + 1
                for place, replicas in chosen.items()
                if heavy in replicas and light not in replicas
            ),
            None,
        )
        if move is None:
            return
        place, heavy, light = move
        chosen[place][chosen[place].index(heavy)] = light
        load[heavy] -= 1
        load[light] += 1


def _spread_leaders(chosen: dict[Place, list[int]]) -> None:
    leads: Counter[int] = Counter()
    for replicas in chosen.values():
        first = min(replicas, key=lambda each: (leads[each], replicas.index(each)))
        leads[first] += 1
        replicas.remove(first)
        replicas.insert(0, first)
