"""Run seeds of the joined simulation: `python -m tests.simulation.joined.run --seeds 100`."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable

from tests.simulation.joined.platform import CHAOS_S, Platform

_REASON_CHARACTERS = 500


def search(seeds: Iterable[int], *, has_share_group: bool = False) -> int | None:
    """Return the first seed that fails for any reason; None if none does."""
    for seed in seeds:
        try:
            Platform(seed, has_share_group=has_share_group).run()
        except Exception:
            return seed
    return None


def explain(seed: int, chaos_s_max: float, *, has_share_group: bool, brokers: int | None) -> None:
    """Print a seed's history with the brokers' log, and its outcome."""
    platform = Platform(
        seed,
        is_verbose=True,
        chaos_s_max=chaos_s_max,
        has_share_group=has_share_group,
        brokers=brokers,
    )
    verdict = "clean"
    try:
        platform.run()
    except Exception as error:
        verdict = f"{type(error).__name__}: {error}"
    for line in platform.world.history:
        print(line)
    print(f"seed {seed}: {verdict}; history {platform.world.digest()}")


def main() -> int:
    """Print the failed seeds and what was covered; return 1 if a seed failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--chaos", type=float, default=max(CHAOS_S), help="seconds of faults at most"
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default %(default)s)")
    parser.add_argument(
        "--history", action="store_true", help="print the whole history of the first seed, and end"
    )
    parser.add_argument("--only", type=int, nargs="+", help="these seeds instead")
    parser.add_argument(
        "--share-group", action="store_true", help="with two members of a share group"
    )
    parser.add_argument("--brokers", type=int, help="how many (default: the seed draws 3 or 5)")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of strings must depend on the seed only.
        command = [sys.executable, "-m", "tests.simulation.joined.run", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | {"PYTHONHASHSEED": "0"})
    if arguments.history:
        explain(
            arguments.first,
            arguments.chaos,
            has_share_group=arguments.share_group,
            brokers=arguments.brokers,
        )
        return 0
    # Most objects live as long as their seed: frequent collections would be wasted.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    covered: Counter[str] = Counter()
    failed: list[int] = []
    simulated_s = 0.0
    steps = 0
    seeds = arguments.only or range(arguments.first, arguments.first + arguments.seeds)
    for seed in seeds:
        platform = Platform(
            seed,
            chaos_s_max=arguments.chaos,
            has_share_group=arguments.share_group,
            brokers=arguments.brokers,
        )
        try:
            platform.run()
        except Exception as error:
            failed.append(seed)
            again = f"python -m tests.simulation.joined.run --history --first {seed}"
            if arguments.share_group:
                again += " --share-group"
            if arguments.brokers:
                again += f" --brokers {arguments.brokers}"
            if arguments.chaos < max(CHAOS_S):
                again += f" --chaos {arguments.chaos:g}"
            reason = str(error)[-_REASON_CHARACTERS:]
            print(f"seed {seed}: {type(error).__name__}: {reason}\n  {again}", flush=True)
        covered += platform.world.faults
        covered["records acknowledged"] += sum(map(len, platform.checker.acknowledged.values()))
        covered["transactions"] += len(platform.checker.transactions)
        simulated_s += platform.world.now
        steps += platform.world.executed
    for name, number in sorted(covered.items()):
        print(f"{number:12,}  {name}")
    print(
        f"{len(seeds)} seeds from {seeds[0]}, {len(failed)} failed {failed[:20]}; "
        f"{simulated_s / 3600:.2f} simulated hours, {steps:,} steps, "
        f"{time.process_time():.0f} s of CPU"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
