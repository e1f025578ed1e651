"""Which brokers a command asks: those of its option, else those of the client's properties."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from waylog import cli
from waylog.config import ConfigError
from waylog.kafka.clients import client_config, consumer_config, producer_config
from waylog.kafka.connection.properties import choose_bootstrap_servers

COMMANDS = [
    ("resolver",),
    ("history", "run"),
    ("gateway",),
    ("bridge", "--mqtt", "127.0.0.1:1"),
    ("topics", "list"),
    ("produce", "location"),
    ("cluster", "describe"),
    ("replay", "--via", "kafka", "track.gpx"),
]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=file:1\n")
    monkeypatch.setenv("WAYLOG_KAFKA_CONFIG", str(path))
    return path


def chosen(*words: str) -> str:
    arguments: argparse.Namespace = cli.parse_words(words)
    choose_bootstrap_servers(arguments)
    servers: str = arguments.bootstrap_servers
    return servers


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
@pytest.mark.usefixtures("file")
def test_the_files_brokers_are_asked_only_where_no_option_names_others(
    words: tuple[str, ...],
) -> None:
    assert chosen(*words) == "file:1"
    assert chosen(*words, "--bootstrap-servers", "option:1") == "option:1"
    assert chosen(*words, "--bootstrap-servers", "127.0.0.1:9092") == "127.0.0.1:9092"


@pytest.mark.usefixtures("file")
def test_no_client_takes_brokers_from_the_file_by_itself() -> None:
    for config in (
        client_config("option:1", "test"),
        producer_config("option:1", "test"),
        consumer_config("option:1", "test", "group"),
    ):
        assert config["bootstrap.servers"] == "option:1"


@pytest.mark.usefixtures("file")
def test_a_commands_own_properties_come_before_those_of_the_environment(tmp_path: Path) -> None:
    own = tmp_path / "own.properties"
    own.write_text("bootstrap.servers=own:1\n")
    words = ("topics", "list", "--command-config", str(own))
    assert chosen(*words) == "own:1"
    assert chosen(*words, "-X", "bootstrap.servers=x:1") == "x:1"
    assert chosen(*words, "--bootstrap-servers", "option:1") == "option:1"
    own.write_text("security.protocol=PLAINTEXT\n")
    assert chosen(*words) == "file:1"


def test_without_any_the_default_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAYLOG_KAFKA_CONFIG", raising=False)
    assert chosen("topics", "list") == "127.0.0.1:9092"


def test_a_wrong_entry_names_its_file(file: Path) -> None:
    file.write_text("bootstrap.servers=nowhere\n")
    with pytest.raises(ConfigError, match=f"{file}: bootstrap.servers=nowhere: HOST:PORT"):
        chosen("resolver")


@pytest.mark.usefixtures("file")
def test_a_command_tries_the_files_brokers(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file.write_text("bootstrap.servers=127.0.0.1:1\n")
    assert cli.main(["topics", "list"]) == cli.EXIT_FAILED
    assert "no Kafka broker answers at 127.0.0.1:1:" in capfd.readouterr().err


@pytest.mark.usefixtures("file")
def test_a_log_that_was_not_named_is_not_erased_from() -> None:
    arguments = cli.parse_words(("history", "erase", "--device", "a/b"))
    choose_bootstrap_servers(arguments)
    assert arguments.bootstrap_servers is None
