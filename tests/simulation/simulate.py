"""Run the simulation over many seeds, as `make sim SEEDS=10000` does, or one of them again."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from broker_core.cluster.image import ImageError
from broker_core.quorum.replicated_log import LogsDisagree
from tests.simulation.controller_cluster import ControllerCluster
from tests.simulation.quorum_checker import Violation
from tests.simulation.quorum_cluster import Cluster

CHAOS_S = 60.0
SUBJECTS: dict[str, type[Cluster]] = {"quorum": Cluster, "controller": ControllerCluster}


def main() -> int:
    """Print what failed and what was covered; return 1 if a seed failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default %(default)s)")
    parser.add_argument(
        "--of",
        choices=sorted(SUBJECTS),
        default="quorum",
        help="the quorum alone, or brokers and controllers (default %(default)s)",
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed (default %(default)s)")
    arguments = parser.parse_args()
    # The brokers' messages about faults are of no interest here.
    logging.disable(logging.CRITICAL)
    covered: Counter[str] = Counter()
    failed = 0
    simulated_s = 0.0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        cluster = SUBJECTS[arguments.of](seed)
        try:
            cluster.run(CHAOS_S)
        except (Violation, LogsDisagree, ImageError) as violation:
            failed += 1
            print(f"seed {seed}: {violation}")
        covered.update(cluster.faults)
        covered.update({f"message {name}": n for name, n in cluster.network.faults.items()})
        covered["elections"] += cluster.checker.elections
        covered["entries committed"] += len(cluster.checker.committed)
        covered["events"] += cluster.scheduler.executed
        simulated_s += cluster.scheduler.now
    for name, number in covered.items():
        print(f"{number:12,}  {name}")
    print(
        f"{arguments.seeds} seeds, {failed} failed; {simulated_s / 3600:.1f} simulated hours, "
        f"{time.process_time():.0f} s of CPU"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
