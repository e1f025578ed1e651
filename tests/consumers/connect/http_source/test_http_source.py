"""HttpSource in a worker, on a real broker, asking a real server."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.consumers.connect.connect_process import (
    ConnectProcess,
    Topic,
    create_topic,
    wait_until,
)
from tests.consumers.connect.http.http_server import Answer, HttpServer, Seen

MakeWorker = Callable[..., ConnectProcess]


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer().running() as server:
        yield server


@pytest.fixture
def topic(servers: str) -> str:
    name = f"http-{uuid.uuid4().hex[:8]}"
    create_topic(servers, name, 1)
    return name


def source(server: HttpServer, topic: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": "HttpSource",
        "http.url": f"{server.url}/list?since=${{offset}}",
        "kafka.topic": topic,
        "offset.pointer": "/n",
        "poll.interval.ms": "20",
        "retry.backoff.ms": "20",
        "value.converter": "StringConverter",
        "key.converter": "StringConverter",
        **{name.replace("__", "."): text for name, text in more.items()},
    }


class Numbers:
    """Answers with the numbers from `since` on, at most ten."""

    def __init__(self) -> None:
        self.end = 0

    def __call__(self, seen: Seen) -> Answer:
        since = int(parse_qs(urlsplit(seen.path).query)["since"][0])
        numbers = range(since, min(self.end, since + 10))
        return 200, json.dumps([{"n": each} for each in numbers])


def numbers(topic: Topic) -> list[int]:
    return [json.loads(each)["n"] for each in topic.values()]


def test_nothing_is_lost_when_the_worker_is_killed(
    servers: str, make_worker: MakeWorker, server: HttpServer, topic: str
) -> None:
    answers = server.answer = Numbers()
    worker = make_worker(servers, **{"offset.flush.interval.ms": "100"})
    records = Topic(servers, topic)
    config = source(server, topic)
    for end in (50, 100, 150):
        worker.start()
        worker.create("in", config)
        answers.end = end
        wait_until(lambda: set(numbers(records)) == set(range(end)), f"{end} numbers", worker)  # noqa: B023
        answers.end += 15
        worker.kill()
    worker.start()
    worker.create("in", config)
    wait_until(lambda: set(numbers(records)) == set(range(165)), "all numbers", worker)
    # It went on where it was, and not at the beginning.
    assert len(numbers(records)) < 300
    records.close()


def test_an_answer_that_has_not_changed_is_not_sent_again(
    servers: str, make_worker: MakeWorker, server: HttpServer, topic: str
) -> None:
    def answer(seen: Seen) -> Answer:
        if seen.headers.get("If-None-Match") == '"one"':
            return 304, ""
        return 200, '{"items": [{"id": "a"}, {"id": "b"}]}', {"ETag": '"one"'}

    server.answer = answer
    worker = make_worker(servers, **{"offset.flush.interval.ms": "100"})
    config = source(server, topic, records__pointer="/items", key__pointer="/id")
    config |= {"http.url": f"{server.url}/all", "headers.X-Team": "geo"}
    del config["offset.pointer"]
    records = Topic(servers, topic)
    for _ in range(2):
        worker.start()
        worker.create("in", config)
        before = len(server.seen)
        wait_until(lambda: len(server.seen) > before + 5, "several requests", worker)  # noqa: B023
        expected = [{"partition": {"connector": "in"}, "offset": {"etag": '"one"'}}]
        wait_until(
            lambda: worker.ask("GET", "/connectors/in/offsets")[1]["offsets"] == expected,  # noqa: B023
            "the offset",
            worker,
        )
        worker.stop()
    wait_until(lambda: len(records.read()) >= 2, "both records", worker)
    assert [each.key() for each in records.records] == [b"a", b"b"]
    assert server.seen[0].headers["X-Team"] == "geo"
    assert all("If-None-Match" in each.headers for each in server.seen[1:])
    records.close()


def test_a_server_in_trouble_is_asked_again(
    servers: str, make_worker: MakeWorker, server: HttpServer, topic: str
) -> None:
    troubles: list[Answer] = [
        *((503, "", {"Retry-After": "0"}), (429, ""), (500, "secret"), (200, "<html>")),
        (200, '{"n": 7}'),
    ]
    server.answer = lambda _: troubles.pop(0) if len(troubles) > 1 else troubles[0]
    worker = make_worker(servers)
    worker.start()
    worker.create("in", source(server, topic))
    records = Topic(servers, topic)
    wait_until(lambda: numbers(records) == [7], "the record", worker)
    server.stop()
    worker.wait_for("asked again")
    troubles[:] = [(200, '{"n": 8}')]
    server.start()
    wait_until(lambda: numbers(records) == [7, 8], "the next one", worker)
    worker.await_states("in", "RUNNING", "RUNNING")
    records.close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((401, ""), "401 Unauthorized"),
        ((302, "", {"Location": "/other"}), "302 Found"),
        ((404, ""), "404 Not Found"),
        ((200, "[" + " " * 5000 + "]"), "more than 2048 bytes"),
    ],
)
def test_what_waiting_does_not_cure_fails_the_task(
    servers: str,
    make_worker: MakeWorker,
    server: HttpServer,
    topic: str,
    answer: Answer,
    why: str,
) -> None:
    server.answer = lambda _: answer
    worker = make_worker(servers)
    worker.start()
    url = f"{server.url}/path-secret?key=query-secret&since=${{offset}}"
    config = source(server, topic, http__url=url, response__bytes__max="2048")
    worker.create("in", config)
    worker.await_states("in", "RUNNING", "FAILED")
    assert why in worker.trace("in")
    assert "secret" not in worker.trace("in") + worker.output
    assert len(server.seen) == 1
