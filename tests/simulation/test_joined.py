"""The whole platform under faults that a seed selects; `make sim` runs more and longer seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.early

_ROOT = Path(__file__).parents[2]
#: Each mutant below is found within twenty seeds; `make sim` has a thousand.
_SEEDS_AT_ONCE = 20
#: Seconds of faults in each seed here; `make sim` has more.
_CHAOS_S = "0.7"


#: Mutants (see `joined.mutants`) that were found within twenty seeds.
FOUND = (
    "acknowledge before the ISR has it",
    "commit by majority",
    "truncate by the high watermark",
    "let followers join that are behind",
    "answer an offset commit before its record is committed",
    "answer the end of a transaction before its state is committed",
    "take repeated batches for new ones",
    "coordinate groups without reading what is stored",
    "show records of open transactions",
    "do not say what was aborted",
    "share: answer before it is stored",
    "share: begin anew with every leader",
    "share: store without waiting for the others",
)


#: Seeds that found bugs of ours; docs/simulation.md names them.
FINDERS = (
    0,
    247,
    373,
    2055,
    5064,
    5731,
    6043,
    6072,
    7052,
    8261,
    8467,
    9469,
    9775,
    14543,
    16474,
    16767,
)


def run_module(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # In a process of its own, because the order of sets of strings must depend on the seed only.
    return subprocess.run(
        [sys.executable, "-m", f"tests.simulation.joined.{module}", *arguments],
        cwd=_ROOT,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("first", range(0, 40, _SEEDS_AT_ONCE))
def test_the_platform_keeps_its_promises_whatever_the_seed_does_to_it(first: int) -> None:
    ran = run_module(
        "run", "--first", str(first), "--seeds", str(_SEEDS_AT_ONCE), "--chaos", _CHAOS_S
    )
    assert not ran.returncode, ran.stdout + ran.stderr


def test_share_groups_keep_their_promises_whatever_the_seed_does_to_them() -> None:
    ran = run_module("run", "--share-group", "--seeds", str(_SEEDS_AT_ONCE), "--chaos", _CHAOS_S)
    assert not ran.returncode, ran.stdout + ran.stderr


def test_seeds_that_have_found_errors_find_none() -> None:
    ran = run_module("run", "--only", *map(str, FINDERS))
    assert not ran.returncode, ran.stdout + ran.stderr
    ran = run_module("run", "--share-group", "--only", "568", "636", "687", "1146")
    assert not ran.returncode, ran.stdout + ran.stderr


def test_a_seed_of_the_platform_has_the_same_history_again() -> None:
    first, second = (
        run_module("run", "--history", "--first", "5", "--chaos", _CHAOS_S) for _ in range(2)
    )
    assert first.stdout.splitlines()[-1].startswith("seed 5: clean; history ")
    assert first.stdout == second.stdout


@pytest.mark.long
@pytest.mark.parametrize("name", FOUND)
def test_the_simulation_of_the_platform_finds_an_error(name: str) -> None:
    ran = run_module("mutants", "--of", name, "--seeds", "100")
    assert not ran.returncode, ran.stdout + ran.stderr


def test_a_cluster_of_one_broker_keeps_its_promises_whatever_the_seed_does_to_it() -> None:
    ran = run_module("run", "--brokers", "1", "--seeds", str(_SEEDS_AT_ONCE), "--chaos", _CHAOS_S)
    assert not ran.returncode, ran.stdout + ran.stderr
