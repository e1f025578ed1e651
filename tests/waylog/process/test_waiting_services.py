"""Services that start before their brokers: each soon says so, and ends when it is told to."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.consumers.running import Process

#: Each command, with the message by which it reports that no broker answers.
SERVICES = (
    (
        ("gateway", "--open", "--http", "127.0.0.1:0", "--mqtt", "none"),
        "no Kafka broker answers at",
    ),
    (("bridge", "--mqtt", "{closed}"), "no Kafka broker answers at"),
    (("resolver",), "no Kafka broker answers at .*; waiting for a broker"),
    (("history", "run", "--out", "history"), "the log did not answer within .*; waiting"),
)


def _started_and_stopped(words: tuple[str, ...], line: str, closed: str) -> tuple[str, str, int]:
    process = Process(
        *(word.format(closed=closed) for word in words), "--bootstrap-servers", closed
    )
    try:
        said = process.wait_for(line, 60).string
    finally:
        status = process.stop(timeout_s=40)
    return said, process.output, status


@pytest.fixture(scope="module")
def ended(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Future[tuple[str, str, int]]]]:
    """Run all services at once, since most of their time is waiting."""
    folder = tmp_path_factory.mktemp("services")
    with pytest.MonkeyPatch.context() as patch, socket.socket() as taken:
        patch.chdir(folder)
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
        taken.bind(("127.0.0.1", 0))  # not listening, so that connections are refused
        closed = f"127.0.0.1:{taken.getsockname()[1]}"
        with ThreadPoolExecutor(len(SERVICES)) as pool:
            yield {
                words[0]: pool.submit(_started_and_stopped, words, line, closed)
                for words, line in SERVICES
            }


@pytest.mark.parametrize("name", [words[0] for words, _ in SERVICES])
def test_a_service_without_a_broker_says_so_first_of_all_and_ends_when_it_is_told(
    name: str, ended: dict[str, Future[tuple[str, str, int]]]
) -> None:
    said, output, status = ended[name].result()
    assert status == 0, output
    assert output.startswith(said), output


def test_a_gateway_names_the_database_of_users_that_it_makes(tmp_path: Path) -> None:
    users = tmp_path / "users.db"
    words = ("gateway", "--users", str(users), "--http", "127.0.0.1:0", "--mqtt", "none")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        process = Process(*words, "--bootstrap-servers", f"127.0.0.1:{taken.getsockname()[1]}")
        try:
            process.wait_for(rf"WARNING .* no database of users {users}.*`waylog user add NAME", 60)
        finally:
            process.stop()
