"""Three workers, fifty kills at random moments under 2,000 fixes/s: no fix is lost."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.consumers.connect.connect_process import DistributedProcess, create_topic
from tests.consumers.connect.fix_load import FixLoad
from tests.consumers.connect.http.recording_server import RecordingServer
from tests.consumers.connect.killed_sinks import (
    await_dead_letters,
    await_requests,
    await_rows,
    create,
    kill_at_random,
    requests_config,
    rows_config,
    states,
)
from tests.consumers.connect.postgresql.postgres_server import PostgresServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

_KILLS = 50
_SEED = 20251128
_POISON_EVERY = 5000

MakeGroup = Callable[..., list[DistributedProcess]]


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RecordingServer]:
    server = RecordingServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def workers(make_group: MakeGroup) -> list[DistributedProcess]:
    workers = make_group(3, f"killed-{uuid.uuid4().hex[:8]}")
    for each in workers:
        each.start()
    return workers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"fixes-{uuid.uuid4().hex[:8]}"
    create_topic(servers, name, 6)
    return name


def test_each_acknowledged_fix_is_a_row_once(
    servers: str, workers: list[DistributedProcess], postgres: PostgresServer, topic: str
) -> None:
    create(workers, "rows", rows_config(postgres, topic, 3))
    load = FixLoad(servers, topic, poison_every=_POISON_EVERY)

    def kill_server() -> None:
        postgres.kill()
        postgres.start_again()

    with load.running():
        counts = kill_at_random(
            workers,
            {"postgresql": kill_server, "session": postgres.kill_a_session},
            _KILLS,
            _SEED,
        )
    await_rows(postgres, load, workers[0])
    await_dead_letters(servers, f"letters-{topic}", load, "no JSON")
    print(f"{load.sent} fixes, {len(load.poison)} dead letters; killed: {counts}")
    assert states(workers[0], "rows") == ["RUNNING"] * 4
    assert not any("Traceback" in each.output for each in workers)


def test_each_acknowledged_fix_is_delivered_and_repeated_with_its_key(
    servers: str, workers: list[DistributedProcess], server: RecordingServer, topic: str
) -> None:
    create(workers, "requests", requests_config(server, topic, 3))
    load = FixLoad(servers, topic, poison_every=_POISON_EVERY)

    def kill_server() -> None:
        server.kill()
        server.start()

    with load.running():
        counts = kill_at_random(workers, {"http": kill_server}, _KILLS, _SEED)
    repeated = await_requests(server, load)
    await_dead_letters(servers, f"letters-{topic}", load, "422")
    print(f"{load.sent} fixes, {repeated} delivered again; killed: {counts}")
    assert states(workers[0], "requests") == ["RUNNING"] * 4
    assert not any("Traceback" in each.output for each in workers)
