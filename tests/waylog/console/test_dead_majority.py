"""The console's commands on a cluster of three brokers of which two have been killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract.cluster_processes import ClusterProcesses
from tests.forked_commands import ForkedCommands
from tests.waylog.console.terminal import Terminal

pytestmark = pytest.mark.early

#: Seconds that a command may take: four until it asks what is missing, three for that, and the rest
#: for a busy machine.
WITHIN_S = 30.0
COMMANDS = (
    "topics list",
    "topics create new",
    "topics describe trips",
    "topics alter trips --partitions 9",
    "topics delete trips",
    "topics ensure",
    "groups list",
    "groups describe readers",
    "produce trips",
    "offsets trips",
    "consume trips --from beginning --exit",
    "consume trips --group readers",
    "cluster elect",
    "cluster reassign trips --brokers 1,2",
    "cluster reassign --list",
)


@pytest.fixture(scope="module")
def remnant(
    tmp_path_factory: pytest.TempPathFactory, commands: ForkedCommands
) -> Iterator[Terminal]:
    """Give a terminal for a cluster that has lost two brokers, and with them its majority."""
    cluster = ClusterProcesses(tmp_path_factory.mktemp("cluster"))
    terminal = Terminal(cluster.start(), commands)
    try:
        terminal.run("topics", "create", "trips", "--partitions", "6")
        terminal.run("produce", "trips", stdin="a\nb\n")
        terminal.run("groups", "reset", "readers", "--topic", "trips", "--to", "beginning")
        with ThreadPoolExecutor() as executor:
            list(executor.map(lambda node: cluster.brokers[node].kill(), (1, 2)))
        deadline = time.monotonic() + 60
        while "no active controller answers" not in _described(terminal):
            assert time.monotonic() < deadline
        yield terminal
    finally:
        cluster.stop()


def _described(terminal: Terminal) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "waylog.cli", "cluster", "describe", "--bootstrap-servers",
         terminal.bootstrap_servers],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout


def test_each_command_says_in_one_line_what_the_cluster_lacks(remnant: Terminal) -> None:
    def said_by(command: str) -> tuple[str, float]:
        began = time.monotonic()
        said = remnant.run(*command.split(), stdin="c\n", status=1)
        return said, time.monotonic() - began

    with ThreadPoolExecutor(5) as executor:
        outcomes = dict(zip(COMMANDS, executor.map(said_by, COMMANDS), strict=True))
    for command, (said, took_s) in outcomes.items():
        (line,) = (each for each in said.splitlines() if each.startswith("waylog "))
        assert "brokers 1, 2 do not answer" in line, command
        assert "no majority of the controllers answers" in line, command
        assert len(said.splitlines()) == (2 if command.startswith("produce") else 1), command
        assert took_s < WITHIN_S, command
    for command in ("topics list", "offsets trips", "produce trips"):
        assert "no leader answers for " in outcomes[command][0]
    assert "0 of 1 records acknowledged" in outcomes["produce trips"][0]


def test_the_description_counts_no_dead_broker_as_running_leading_or_in_sync(
    remnant: Terminal,
) -> None:
    head, *_ = _described(remnant).splitlines()
    assert "no active controller answers" in head
    said = remnant.run("cluster", "describe", "--json", status=1)
    assert "not known: controllers" in said
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    brokers = {row["broker"]: row for row in rows if "broker" in row}
    assert brokers.keys() == {1, 2, 3}
    assert brokers[3]["running"] is True
    partitions = [row for row in rows if "topic" in row]
    assert f"{len(partitions)} partitions, {len(partitions)} of them under-replicated" in head
    for node in (1, 2):
        assert not brokers[node]["running"]
        assert (brokers[node]["leads"], brokers[node]["in_sync"]) == (0, 0)
        assert brokers[node]["replicas"] == len(partitions)
    assert all(row["in_sync"] in ("", "3") and row["leader"] in (None, 3) for row in partitions)
