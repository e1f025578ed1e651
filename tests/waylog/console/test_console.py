"""The console tools, as a person at a terminal uses them, on a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.broker_process import BrokerProcess


class Terminal:
    """Runs `waylog` commands against one broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def run(self, *words: str, stdin: str = "", status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "waylog.cli", *words, "--bootstrap-servers",
             self.bootstrap_servers],
            input=stdin, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def rows(self, *words: str) -> list[dict[str, Any]]:
        printed = self.run(*words, "--json")
        return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    yield Terminal(broker.start())
    broker.stop()


@pytest.fixture
def topic(terminal: Terminal) -> str:
    name = f"trips-{uuid.uuid4().hex[:8]}"
    terminal.run("topics", "create", name, "--partitions", "2", "--config", "retention.ms=86400000")
    return name


def test_a_topic_is_created_described_altered_and_deleted(terminal: Terminal, topic: str) -> None:
    assert {"topic": topic, "partitions": 2, "records": 0} in terminal.rows("topics", "list")
    described = terminal.rows("topics", "describe", topic)
    assert {"setting": "retention.ms", "value": "86400000", "default": False} in described
    terminal.run("topics", "alter", topic, "--config", "retention.ms=1000", "--partitions", "3")
    described = terminal.rows("topics", "describe", topic)
    assert {"setting": "retention.ms", "value": "1000", "default": False} in described
    assert sum("leader" in row for row in described) == 3
    terminal.run("topics", "delete", topic)
    assert topic not in [row["topic"] for row in terminal.rows("topics", "list")]


def test_what_was_produced_is_consumed_with_its_key_and_headers(
    terminal: Terminal, topic: str
) -> None:
    lines = 'anna/phone|{"lat":47.14}\nben/phone|not JSON\n'
    words = ("--key-separator", "|", "--header", "source=test", "--partition", "1")
    assert "2 of 2 records" in terminal.run("produce", topic, *words, stdin=lines)
    records = terminal.rows("consume", topic, "--from", "beginning", "--exit")
    assert [(each["key"], each["value"], each["headers"]) for each in records] == [
        ("anna/phone", {"lat": 47.14}, {"source": "test"}),
        ("ben/phone", "not JSON", {"source": "test"}),
    ]
    assert [each["partition"] for each in records] == [1, 1]
    assert terminal.run("consume", topic, "--from", "-1", "--exit", "--key") == (
        "ben/phone\tnot JSON\n"
    )
    assert terminal.run("consume", topic, "--from", "1", "--max", "1") == "not JSON\n"


def test_offsets_are_found_by_time(terminal: Terminal, topic: str) -> None:
    terminal.run("produce", topic, "--partition", "0", stdin="a\nb\n")
    rows = terminal.rows("offsets", topic, "--at", "2001-01-01T00:00:00")
    assert rows[0] == {"partition": 0, "first": 0, "end": 2, "records": 2, "at_time": 0}
    assert terminal.rows("offsets", topic, "--at", "2100-01-01")[0]["at_time"] == 2


def test_a_groups_offsets_are_set_anew_and_its_lag_is_shown(terminal: Terminal, topic: str) -> None:
    terminal.run("produce", topic, "--partition", "0", stdin="a\nb\nc\n")
    group = f"group-{topic}"
    reset = ("groups", "reset", group, "--topic", topic)
    assert terminal.rows(*reset, "--to", "2", "--dry-run")[0]["after"] == 2
    assert terminal.rows("groups", "describe", group) == []
    terminal.run(*reset, "--to", "2")
    assert terminal.rows("groups", "describe", group)[0] == {
        "topic": topic, "partition": 0, "committed": 2, "end": 3, "lag": 1,
    }  # fmt: skip
    terminal.run(*reset, "--to", "-1")
    assert terminal.rows("groups", "describe", group)[0]["committed"] == 1
    assert group in [row["group"] for row in terminal.rows("groups", "list")]


@pytest.mark.parametrize(
    ("words", "explanation"),
    [
        (("topics", "describe", "absent"), "topic absent"),
        (("consume", "absent"), "topic absent"),
        (("topics", "alter", "absent"), "nothing to change"),
        (("topics", "create", "x", "--config", "nonsense"), "NAME=VALUE"),
        (("offsets", "absent", "--at", "soon"), "not a time"),
    ],
)
def test_a_mistake_is_explained_in_one_line(
    terminal: Terminal, words: tuple[str, ...], explanation: str
) -> None:
    assert explanation in terminal.run(*words, status=1)


def test_the_platforms_topics_are_made_once(terminal: Terminal) -> None:
    assert "location" in terminal.run("topics", "ensure")
    assert "all topics were there" in terminal.run("topics", "ensure")
