"""The whole platform under faults that a seed draws; `make sim` runs more and longer seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_SEEDS_AT_ONCE = 50
#: Seconds of faults of each seed here; `make sim` has more.
_CHAOS_S = "1"

#: Seeds that have found something, and what: see docs/simulation.md.
NAMED_SEEDS = {
    0: "a leader of the quorum never answered a fetch that was asked again",
    247: "rotten bits in a producer snapshot kept a broker from starting",
}


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    # In a process of its own: the order of sets of strings belongs to the seed.
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation.joined.run", *arguments],
        cwd=_ROOT,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("first", range(0, 200, _SEEDS_AT_ONCE))
def test_the_platform_keeps_its_promises_whatever_the_seed_does_to_it(first: int) -> None:
    ran = simulate("--first", str(first), "--seeds", str(_SEEDS_AT_ONCE), "--chaos", _CHAOS_S)
    assert not ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize("seed", NAMED_SEEDS)
def test_a_seed_that_found_something_is_clean(seed: int) -> None:
    ran = simulate("--first", str(seed), "--seeds", "1")
    assert not ran.returncode, NAMED_SEEDS[seed] + ran.stdout + ran.stderr


def test_a_seed_of_the_platform_has_the_same_history_again() -> None:
    first, second = (simulate("--history", "--first", "5", "--chaos", _CHAOS_S) for _ in range(2))
    assert first.stdout.splitlines()[-1].startswith("seed 5: clean; history ")
    assert first.stdout == second.stdout
