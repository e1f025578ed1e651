"""Sinks while workers and targets are killed at random moments: what has to be there afterwards."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tests.consumers.connect.connect_process import (
    DistributedProcess,
    Topic,
    headers_of,
    wait_until,
)
from tests.consumers.connect.fix_load import FixLoad
from tests.consumers.connect.http.recording_server import RecordingServer
from tests.consumers.connect.postgresql.postgres_server import PASSWORD, PostgresServer
from tests.consumers.connect.sink_harness import fix
from tests.consumers.running import await_condition

#: Seconds between two kills, at random; the next may come while a worker or a server still starts.
_PAUSE_S: Final = (0.0, 4.0)
_CATCH_UP_S: Final = 240.0
_JSON_ID: Final = '"id": "'


def dead_letters(topic: str) -> dict[str, str]:
    """Return the properties that send refused records to a topic, with their reasons."""
    return {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": topic,
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }


def rows_config(postgres: PostgresServer, topic: str, tasks: int) -> dict[str, str]:
    """Return the configuration of a connector that writes fixes into table `rows`."""
    return {
        "connector.class": "PostgreSqlSink",
        "topics": topic,
        "tasks.max": str(tasks),
        "connection.url": postgres.url,
        "connection.password": PASSWORD,
        "insert.mode": "upsert",
        "pk.mode": "record_value",
        "pk.fields": "id",
        "auto.create": "true",
        "table.name.format": "rows",
        "retry.backoff.ms": "200",
        **dead_letters(f"letters-{topic}"),
    }


def requests_config(server: RecordingServer, topic: str, tasks: int) -> dict[str, str]:
    """Return the configuration of a connector that sends each fix in a request of its own."""
    return {
        "connector.class": "HttpSink",
        "topics": topic,
        "tasks.max": str(tasks),
        "url": server.url,
        "connections.max": "16",
        "retry.backoff.ms": "100",
        "retry.backoff.max.ms": "500",
        **dead_letters(f"letters-{topic}"),
    }


def create(workers: Sequence[DistributedProcess], name: str, config: Mapping[str, str]) -> None:
    """Create a connector, and wait until all of its tasks run."""
    worker = workers[0]

    def created() -> bool:
        status, answer = worker.ask("PUT", f"/connectors/{name}/config", dict(config))
        assert status in (200, 201, 409), answer
        return status != 409

    wait_until(created, name, worker)
    wanted = ["RUNNING"] * (1 + int(config["tasks.max"]))
    wait_until(lambda: states(worker, name) == wanted, f"{name} runs", worker)


def states(worker: DistributedProcess, name: str) -> list[str]:
    """Return the states of a connector and of its tasks; [] while nobody knows them."""
    status, found = worker.ask("GET", f"/connectors/{name}/status")
    if status != 200:
        return []
    return [found["connector"]["state"], *(each["state"] for each in found["tasks"])]


def kill_at_random(
    workers: Sequence[DistributedProcess],
    others: Mapping[str, Callable[[], None]],
    kills: int,
    seed: int,
) -> dict[str, int]:
    """Kill (SIGKILL) and start again, at random moments; return how often each was killed.

    A worker is killed every second time, one of the `others`, which kill and start their thing, at
    the other times. Nobody waits for a worker that starts: it may be killed before it is ready.
    """
    chance = random.Random(seed)
    starting: set[DistributedProcess] = set()
    counts: dict[str, int] = defaultdict(int)
    for number in range(kills):
        time.sleep(chance.uniform(*_PAUSE_S))
        if number % 2:
            name = chance.choice(sorted(others))
            others[name]()
        else:
            name, worker = "worker", chance.choice(workers)
            worker.kill()
            worker.start(is_ready=False)
            starting.add(worker)
        counts[name] += 1
    for worker in starting:
        worker.url = worker.wait_for(r"connect worker ready (\S+)")[1]
    return dict(counts)


def await_rows(postgres: PostgresServer, load: FixLoad, worker: DistributedProcess) -> None:
    """Wait until each acknowledged fix is a row; each has to be there once, and nothing else."""

    def count() -> int:
        return int(postgres.query("SELECT count(*) FROM rows")[0][0])

    await_condition(lambda: count() >= load.sent, _CATCH_UP_S, f"{load.sent} rows")
    rows = postgres.query("SELECT count(*), count(DISTINCT id), min(id), max(id) FROM rows")
    assert rows == [(load.sent, load.sent, fix(0)["id"], fix(load.sent - 1)["id"])], worker.output


def await_requests(server: RecordingServer, load: FixLoad) -> int:
    """Wait until each acknowledged fix was delivered; return how many were repeated.

    What is delivered again has the idempotency key that it had at first.
    """
    wanted = {fix(number)["id"] for number in range(load.sent)}

    def delivered() -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for key, body in server.requests():
            found[body.partition(_JSON_ID)[2].partition('"')[0]].append(key)
        return found

    await_condition(lambda: wanted <= delivered().keys(), _CATCH_UP_S, f"{load.sent} requests")
    found = delivered()
    assert found.keys() == wanted
    assert [keys for keys in found.values() if len(set(keys)) > 1] == []
    # A key is that of one fix alone.
    assert len({keys[0] for keys in found.values()}) == load.sent
    return sum(len(keys) - 1 for keys in found.values())


def await_dead_letters(servers: str, topic: str, load: FixLoad, reason: str) -> None:
    """Wait until each record that cannot be read is a dead letter with its reason."""
    letters = Topic(servers, topic)
    wait_until(
        lambda: set(load.poison) <= {each.value() for each in letters.read()},
        f"{len(load.poison)} dead letters",
    )
    assert {each.value() for each in letters.records} == set(load.poison)
    headers: list[Any] = [headers_of(each) for each in letters.records]
    assert all(reason in each["__connect.errors.exception.message"] for each in headers)
    letters.close()
