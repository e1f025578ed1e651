"""Plans which replicas to move when partitions are spread over brokers, with few moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

Place = tuple[str, int]


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
