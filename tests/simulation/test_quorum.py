"""The metadata quorum under faults that a seed selects; `make sim` runs more seeds."""

from __future__ import annotations

import pytest

from broker_core.quorum.replica import QuorumReplica
from broker_core.quorum.replicated_log import LogsDisagree
from tests.simulation.quorum_checker import Violation
from tests.simulation.quorum_cluster import Cluster
from tests.simulation.quorum_mutants import MUTANTS
from tests.simulation.simulate import CHAOS_S

SEEDS_AT_ONCE = 20


@pytest.mark.parametrize("first", range(0, 60, SEEDS_AT_ONCE))
def test_a_quorum_keeps_its_promises_whatever_the_seed_does_to_it(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        try:
            Cluster(seed).run(CHAOS_S)
        except (Violation, LogsDisagree) as violation:
            command = f"python -m tests.simulation.simulate --first {seed} --seeds 1"
            pytest.fail(f"{violation}; again with: {command}")


def test_a_seed_runs_the_same_way_again() -> None:
    def outcome() -> tuple[int, int, list[bytes]]:
        cluster = Cluster(11)
        cluster.run(CHAOS_S)
        return cluster.scheduler.executed, cluster.checker.elections, cluster.checker.states

    assert outcome() == outcome()


@pytest.mark.long
@pytest.mark.timeout(1200)  # the rarest is found by seed 658, after 124 s on a core of its own
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_simulation_finds_a_classic_error(mutant: type[QuorumReplica]) -> None:
    for seed in range(2000):
        try:
            Cluster(seed, mutant).run(CHAOS_S)
        except (Violation, LogsDisagree):
            return
    pytest.fail("2000 seeds did not find it")
