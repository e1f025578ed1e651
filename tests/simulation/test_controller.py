"""Brokers and controllers under faults that a seed selects; `make sim` runs more seeds."""

from __future__ import annotations

import pytest

from broker_core.cluster.image import ImageError
from broker_core.cluster.node import MetadataNode
from broker_core.quorum.replicated_log import LogsDisagree
from tests.simulation.controller_cluster import ControllerCluster
from tests.simulation.controller_mutants import MUTANTS
from tests.simulation.quorum_checker import Violation
from tests.simulation.simulate import CHAOS_S

FAILURES = (Violation, LogsDisagree, ImageError)
SEEDS_AT_ONCE = 10


def run(seed: int) -> None:
    try:
        ControllerCluster(seed).run(CHAOS_S)
    except FAILURES as failure:
        command = f"python -m tests.simulation.simulate --of controller --first {seed} --seeds 1"
        pytest.fail(f"{failure}; again with: {command}")


@pytest.mark.parametrize("first", range(0, 10, SEEDS_AT_ONCE))
def test_the_metadata_is_right_whatever_the_seed_does_to_it(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        run(seed)


def test_a_seed_runs_the_same_way_again() -> None:
    def outcome() -> tuple[int, int, list[bytes]]:
        cluster = ControllerCluster(12)
        cluster.run(CHAOS_S)
        return cluster.scheduler.executed, cluster.checker.elections, cluster.checker.states

    assert outcome() == outcome()


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_simulation_finds_an_error_of_the_controller(mutant: type[MetadataNode]) -> None:
    for seed in range(300):
        try:
            ControllerCluster(seed, metadata_type=mutant).run(CHAOS_S)
        except (*FAILURES, RuntimeError):
            return
    pytest.fail("300 seeds did not find it")
