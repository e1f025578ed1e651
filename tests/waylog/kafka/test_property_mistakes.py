"""Mistakes in properties are one line that names where they are and what is expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.certificates import Certificates
from tests.forked_commands import ForkedCommands, forked_commands
from waylog import cli

TLS = {"security.protocol": "SSL"}
#: The properties, the name of the wrong one, and what is expected.
MISTAKES = [
    (TLS | {"ssl.truststore.location": "/no/ca.pem"}, "ssl.truststore.location=/no/ca.pem", "PEM"),
    (TLS | {"ssl.ca.location": "/no/ca.pem"}, "ssl.ca.location=/no/ca.pem", "PEM"),
    (TLS | {"ssl.keystore.location": "/no/key.pem"}, "ssl.keystore.location=/no/key.pem", "PEM"),
    (
        TLS | {"ssl.truststore.location": "{garbage}"},
        "ssl.ca.location={garbage}",
        "PEM is expected",
    ),
    (TLS | {"ssl.truststore.location": "store.jks"}, "ssl.truststore", "PEM is expected"),
    ({"security.protocol": "TLS"}, "security.protocol=tls", "sasl_ssl"),
    (
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM"},
        "sasl.mechanism=SCRAM",
        "SCRAM-SHA-256",
    ),
]
#: Misspelt names, which librdkafka refuses.
UNKNOWN = ["sasl.jaas.conf", "securty.protocol"]
COMMANDS = [
    ("gateway", "--http", "127.0.0.1:0", "--mqtt", "none"),
    ("resolver",),
    ("history", "run", "--engine", "arrow", "--once", "--out", "history"),
    ("topics", "list"),
    ("cluster", "describe"),
]


@pytest.fixture
def garbage(tmp_path: Path) -> Path:
    path = tmp_path / "garbage.pem"
    path.write_text("no certificate\n")
    return path


def written(folder: Path, properties: Mapping[str, str], garbage: Path) -> Path:
    path = folder / "client.properties"
    path.write_text(
        "".join(f"{name}={value.format(garbage=garbage)}\n" for name, value in properties.items())
    )
    return path


def told(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main([*words, "--bootstrap-servers", "127.0.0.1:1"]) == cli.EXIT_USAGE
    line = capfd.readouterr().err
    assert line.startswith(f"waylog {words[0]}: ")
    assert line.count("\n") == 1, line
    return line


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize(("properties", "name", "expected"), MISTAKES)
def test_a_mistake_in_the_environments_file_is_told_by_every_command(
    words: tuple[str, ...],
    properties: Mapping[str, str],
    name: str,
    expected: str,
    garbage: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, properties, garbage)
    monkeypatch.setenv("WAYLOG_KAFKA_CONFIG", str(path))
    line = told(capfd, *words)
    assert f"{path}: {name.format(garbage=garbage)}" in line
    assert expected in line


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize("name", UNKNOWN)
def test_a_misspelt_name_in_the_environments_file_is_told_by_every_command(
    words: tuple[str, ...],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "client.properties"
    path.write_text(f"{name}=x\n")
    monkeypatch.setenv("WAYLOG_KAFKA_CONFIG", str(path))
    line = told(capfd, *words)
    assert f'{path}: No such configuration property: "{name}"' in line
    assert not (tmp_path / "history").exists()


@pytest.mark.parametrize(("properties", "name", "expected"), MISTAKES)
def test_a_mistake_in_the_options_names_the_option(
    properties: Mapping[str, str],
    name: str,
    expected: str,
    garbage: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = written(tmp_path, properties, garbage)
    wrong = name.format(garbage=garbage)
    line = told(capfd, "topics", "list", "--command-config", str(path))
    assert f"{path}: {wrong}" in line
    options = [word for pair in path.read_text().split() for word in ("-X", pair)]
    line = told(capfd, "topics", "list", *options)
    assert f"-X: {wrong}" in line
    assert expected in line


def test_a_value_that_librdkafka_refuses_is_told_before_a_broker_is_asked(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert "request.timeout.ms" in told(capfd, "topics", "list", "-X", "request.timeout.ms=abc")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedCommands]:
    with forked_commands(
        tmp_path_factory.mktemp("commands"), "broker_core.server.command"
    ) as running:
        yield running


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("node.id", "x", "node.id=x: a whole number is expected"),
        ("log.segment.bytes", "big", "log.segment.bytes=big: a whole number is expected"),
        ("num.partitions", "1.5", "num.partitions=1.5: a whole number is expected"),
        ("num.partitions", "-1", "num.partitions=-1: at least 1 is expected"),
        ("auto.create.topics.enable", "maybe", "=maybe: true or false is expected"),
        ("ssl.keystore.location", "/no/key.pem", "ssl.keystore.location=/no/key.pem"),
        ("compression.type", "best", "compression.type=best: one of gzip"),
    ],
)
def test_a_wrong_value_of_a_broker_is_told_with_its_file(
    name: str,
    value: str,
    expected: str,
    tmp_path: Path,
    certificates: Certificates,
    brokers: ForkedCommands,
) -> None:
    properties = {
        "listeners": "SSL://127.0.0.1:0",
        "log.dirs": str(tmp_path / "logs"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker),
    }
    path = written(tmp_path, properties | {name: value}, tmp_path)
    ended = brokers.run("broker", "--config", str(path))
    assert ended.status not in (None, cli.EXIT_DONE)
    line = ended.stderr.splitlines()[-1]
    assert line.startswith(f"waylog broker: {path}: ")
    assert expected in line
