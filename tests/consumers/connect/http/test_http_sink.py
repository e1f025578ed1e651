"""The connector in a worker, on a real broker and a real server, while both are stopped."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.consumers.connect.connect_process import (
    ConnectProcess,
    Topic,
    create_topic,
    headers_of,
    produce,
    wait_until,
)
from tests.consumers.connect.http.http_server import HttpServer
from tests.consumers.connect.sink_harness import fix

pytestmark = pytest.mark.early

MakeWorker = Callable[..., ConnectProcess]


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer().running() as server:
        yield server


@pytest.fixture
def topic(servers: str) -> str:
    name = f"fixes-{uuid.uuid4().hex[:8]}"
    create_topic(servers, name, 2)
    return name


def config(server: HttpServer, topic: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": "HttpSink",
        "topics": topic,
        "url": server.url + "/in",
        "retry.backoff.ms": "100",
        "retry.backoff.max.ms": "200",
        "consumer.override.group.id": topic,
        **{name.replace("__", "."): text for name, text in more.items()},
    }


def fixes(numbers: range, device: str) -> list[bytes | None]:
    return [json.dumps(fix(number, device)).encode() for number in numbers]


def test_nothing_is_lost_and_repetitions_have_the_same_key(
    servers: str, make_worker: MakeWorker, server: HttpServer, topic: str
) -> None:
    worker = make_worker(servers, **{"consumer.session.timeout.ms": "6000"})
    worker.start()
    worker.create("out", config(server, topic))
    devices = ["anna/phone", "bert/bike", "cleo/cat"]
    for start in range(0, 900, 100):
        is_away = start % 300 == 200
        if is_away:
            server.stop()
        for device in devices:
            produce(servers, topic, fixes(range(start, start + 100), device), key=device.encode())
        if is_away:
            worker.wait_for("records come again")
            worker.kill()
            server.start()
            worker.start()
            worker.create("out", config(server, topic))

    def sent() -> set[tuple[str, int]]:
        bodies = [json.loads(each.body) for each in server.seen]
        return {(body["device"], body["time"]) for body in bodies}

    wait_until(lambda: len(sent()) == 2700, "2700 fixes", worker)
    keys: dict[bytes, set[str]] = {}
    for each in server.seen:
        keys.setdefault(each.body, set()).add(each.headers["Idempotency-Key"])
    assert {len(found) for found in keys.values()} == {1}
    assert len({key for found in keys.values() for key in found}) == 2700
    for device in devices:
        # A repetition goes back to what was not committed; no fix overtakes another the first time.
        times = [
            body["time"]
            for each in server.seen
            if (body := json.loads(each.body))["device"] == device
        ]
        first = list(dict.fromkeys(times))
        assert first == sorted(first)


def test_a_poison_record_goes_to_the_dead_letters_with_its_reason(
    servers: str, make_worker: MakeWorker, server: HttpServer, topic: str
) -> None:
    worker = make_worker(servers)
    worker.start()
    letters = f"letters-{topic}"
    server.answer = lambda seen: (400, "unknown device") if "id=ghost" in seen.path else None
    worker.create(
        "out",
        config(
            server,
            topic,
            template="traccar",
            url=server.url,
            errors__tolerance="all",
            errors__deadletterqueue__topic__name=letters,
            errors__deadletterqueue__topic__replication__factor="1",
            errors__deadletterqueue__context__headers__enable="true",
        ),
    )
    produce(servers, topic, fixes(range(1), "anna/phone"), partition=0)
    produce(servers, topic, fixes(range(1), "ghost"), partition=0)
    produce(servers, topic, [b"poison"], partition=0)
    produce(servers, topic, fixes(range(1, 3), "anna/phone"), partition=0)
    wait_until(lambda: len(server.seen) == 4, "four requests", worker)
    dead = Topic(servers, letters)
    wait_until(lambda: len(dead.read()) == 2, "two dead letters", worker)
    reasons = {
        headers_of(each)["__connect.errors.offset"]: headers_of(each)[
            "__connect.errors.exception.message"
        ]
        for each in dead.records
    }
    assert reasons["1"] == f"{server.url} answered 400 Bad Request: unknown device"
    assert "the record is no position" in reasons["2"]
    dead.close()
    assert worker.states("out") == ["RUNNING", "RUNNING"]


def test_a_wrong_token_fails_the_task_and_shows_itself_nowhere(
    servers: str, make_worker: MakeWorker, server: HttpServer, topic: str
) -> None:
    worker = make_worker(servers)
    worker.start()
    server.answer = lambda seen: (401, f"no: {seen.headers['Authorization']} {seen.path}")
    worker.create(
        "out",
        config(
            server,
            topic,
            url=server.url + "/hook/s3cr3t-path",
            authorization__type="bearer",
            bearer__token="s3cr3t-token",
        ),
    )
    produce(servers, topic, fixes(range(1), "anna/phone"))
    worker.await_states("out", "RUNNING", "FAILED")
    assert "answered 401 Unauthorized: no: [hidden]" in worker.trace("out")
    assert "s3cr3t" not in worker.trace("out") + worker.output
    server.answer = lambda _: None
    assert worker.ask("POST", "/connectors/out/tasks/0/restart")[0] == 204
    wait_until(lambda: len(server.seen) == 2, "the fix", worker)
