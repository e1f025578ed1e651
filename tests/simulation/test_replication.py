"""Replicas under faults that a seed selects; `make sim` runs more seeds."""

from __future__ import annotations

import pytest

from tests.simulation.replication import run, search
from tests.simulation.replication_checker import Violation
from tests.simulation.replication_mutants import MUTANTS, planted

SEEDS_AT_ONCE = 20


@pytest.mark.parametrize("first", range(0, 20, SEEDS_AT_ONCE))
def test_replicas_keep_their_promises_whatever_the_seed_does_to_them(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        try:
            run(seed)
        except Violation as violation:
            command = f"python -m tests.simulation.replication {seed} {seed + 1}"
            pytest.fail(f"{violation}; again with: {command}")


def test_a_seed_of_replicas_runs_the_same_way_again() -> None:
    assert run(8) == run(8)


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulation_of_replicas_finds_a_classic_error(name: str) -> None:
    with planted(name):
        if search(range(300)) is None:
            pytest.fail("300 seeds did not find it")
