"""`waylog cluster`, as a person at a terminal uses it, on three real brokers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.broker_process import BrokerProcess
from tests.contract.cluster_processes import ClusterProcesses
from tests.forked_commands import ForkedCommands
from tests.waylog.console.terminal import Terminal

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    brokers = ClusterProcesses(tmp_path_factory.mktemp("cluster"))
    brokers.start()
    yield brokers
    brokers.stop()


@pytest.fixture(scope="module")
def terminal(cluster: ClusterProcesses, commands: ForkedCommands) -> Terminal:
    terminal = Terminal(cluster.bootstrap_servers, commands)
    terminal.run("topics", "create", "trips", "--partitions", "3")
    return terminal


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def brokers(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {row["broker"]: row for row in rows if "broker" in row}


def test_the_cluster_describes_its_brokers_and_controllers(terminal: Terminal) -> None:
    rows = terminal.rows("cluster", "describe")
    assert brokers(rows).keys() == {1, 2, 3}
    assert all(row["running"] and row["replicas"] == 3 for row in brokers(rows).values())
    roles = sorted(row["role"] for row in rows if "controller" in row)
    assert roles == ["active", "voter", "voter"]
    assert "3 brokers, 3 partitions, 0 of them under-replicated" in terminal.run(
        "cluster", "describe"
    )


def test_replicas_move_where_they_are_told(terminal: Terminal) -> None:
    (row,) = terminal.rows("cluster", "reassign", "trips:0=2,3", "--wait")
    assert (row["to"], row["refused"]) == ("2,3", None)
    described = terminal.rows("topics", "describe", "trips")
    assert next(row["replicas"] for row in described if row.get("partition") == 0) == "2,3"
    assert "nothing is being moved" in terminal.run("cluster", "reassign", "--list")
    moves = terminal.rows("cluster", "reassign", "trips", "--brokers", "1,2", "--dry-run")
    assert {row["to"] for row in moves} <= {"1,2", "2,1"}
    assert "no such topic" in terminal.run("cluster", "reassign", "none:0=1", status=1)
    assert "say where to" in terminal.run("cluster", "reassign", "trips", status=1)


@pytest.mark.long
def test_replicas_may_be_moved_at_a_rate(terminal: Terminal) -> None:
    (row,) = terminal.rows("cluster", "reassign", "trips:0=3,1", "--throttle", "1000000", "--wait")
    assert (row["to"], row["refused"]) == ("3,1", None)
    described = terminal.rows("topics", "describe", "trips")
    assert next(row["replicas"] for row in described if row.get("partition") == 0) == "3,1"
    settings = {row["setting"]: row["value"] for row in described if "setting" in row}
    assert not settings["leader.replication.throttled.replicas"]
    terminal.run("cluster", "reassign", "trips:0=2,3", "--wait")
    terminal.run("cluster", "elect")


def test_a_stopped_broker_is_missed_and_leads_again_when_asked(
    terminal: Terminal, cluster: ClusterProcesses
) -> None:
    # Partitions that an earlier test has moved may still be led by the former replica.
    until(lambda: "led by its preferred replica" in terminal.run("cluster", "elect"))
    led = brokers(terminal.rows("cluster", "describe"))
    cluster.brokers[3].stop()
    rows: list[dict[str, Any]] = []

    def is_missed() -> bool:
        try:
            rows[:] = terminal.rows("cluster", "describe")
        except AssertionError:  # while another controller is elected
            return False
        return not brokers(rows)[3]["running"]

    until(is_missed)
    behind = [row for row in rows if "in_sync" in row and "topic" in row]
    assert behind
    assert all("3" not in row["in_sync"].split(",") for row in behind)
    cluster.start(3)
    until(lambda: not any("topic" in row for row in terminal.rows("cluster", "describe")))
    elected = terminal.rows("cluster", "elect")
    assert all(row["elected"] for row in elected)
    until(lambda: brokers(terminal.rows("cluster", "describe"))[3]["leads"] == led[3]["leads"])
    assert "name the partitions" in terminal.run("cluster", "elect", "--unclean", status=1)


def test_a_broker_that_hangs_is_named_at_once_and_holds_nothing_up(
    cluster: ClusterProcesses, commands: ForkedCommands
) -> None:
    hanging = cluster.brokers[2]
    os.kill(hanging.pid, signal.SIGSTOP)
    try:
        # The broker that hangs is asked first.
        servers = sorted(cluster.bootstrap_servers.split(","), key=hanging.bootstrap_servers.__ne__)
        asked = Terminal(",".join(servers), commands)
        took_s: list[float] = []
        rows: list[dict[str, Any]] = []

        def all_is_known() -> bool:
            began = time.monotonic()
            try:
                rows[:] = asked.rows("cluster", "describe")
            except AssertionError:  # it has printed what it could not learn in its few seconds
                return False
            finally:
                took_s.append(time.monotonic() - began)
            return True

        until(all_is_known)
    finally:
        os.kill(hanging.pid, signal.SIGCONT)
    assert {each: row["answers"] for each, row in brokers(rows).items()} == {
        1: True,
        2: False,
        3: True,
    }
    assert [row for row in rows if "topic" in row and "2" in row["replicas"].split(",")]
    assert max(took_s) < 15  # it asks for four seconds; the rest is a slow machine


def test_nobody_there_is_said_in_one_line(commands: ForkedCommands) -> None:
    said = Terminal("127.0.0.1:1", commands).run("cluster", "describe", status=1)
    assert "no Kafka broker answers at 127.0.0.1:1" in said


def test_a_list_of_brokers_that_is_none_is_a_mistake(commands: ForkedCommands) -> None:
    said = Terminal("kafka1", commands).run("cluster", "describe", status=2)
    assert said.strip() == (
        "waylog cluster: --bootstrap-servers kafka1: HOST:PORT,HOST:PORT... is expected"
    )


def test_a_name_that_is_none_is_told_in_one_line_and_costs_no_other_broker(
    tmp_path: Path, commands: ForkedCommands
) -> None:
    too_long = f"{'a' * 70}.example:9092"
    for name in ("a..b:9092", too_long):
        said = Terminal(name, commands).run("cluster", "describe", status=1)
        assert len(said.splitlines()) == 1
        assert "cannot be resolved (no name of a host)" in said
    broker = BrokerProcess(tmp_path)
    both = Terminal(f"a..b:9092,{broker.start()}", commands)
    try:
        assert "1 brokers, 0 partitions" in both.run("cluster", "describe")
        assert "every partition is led" in both.run("cluster", "elect")
    finally:
        broker.stop()
