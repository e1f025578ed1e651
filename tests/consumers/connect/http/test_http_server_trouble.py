"""Servers that are away, slow or broken, and answers that are not the server's."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from consumers.connect.data.exceptions import ConnectException, RetriableException
from consumers.connect.http.sender import text_of
from tests.consumers.connect.http.http_server import HttpServer
from tests.consumers.connect.http.running_sink import MakeSink
from tests.consumers.connect.sink_harness import fix, record

#: What stands in a server's place, or what it begins to say: the status is one of success.
STRANGERS: dict[str, tuple[Any, str | None, str]] = {
    "a page": ((200, "<!DOCTYPE html>secret", {"Content-Type": "text/html"}), None, "text/html"),
    "a refused page": ((404, "<html>gone", {"Content-Type": "text/html"}), None, "<html>gone"),
    "nothing": ((204, ""), None, "204 No Content with nothing"),
    "a cut": ((200, '{"done":1}'), "cut", "the answer has broken off"),
    "no end": ((200, '{"done":1}'), "endless", "the answer has not ended within 2 s"),
}


def timeout_ms(trouble: str | None) -> str:
    """Return a time that is short only where it has to pass: the server may stand still, too."""
    return "2000" if trouble in ("hang", "endless") else "60000"


@pytest.mark.parametrize("status", [302, 401, 405])
def test_what_no_record_can_help_fails_the_task(
    make_sink: MakeSink, server: HttpServer, status: int
) -> None:
    server.answer = lambda _: (status, "no", {"Location": server.url + "/elsewhere"})
    sink = make_sink(connections_max="1")
    with pytest.raises(ConnectException, match=f"answered {status}"):
        sink.put(1, 2, 3)
    assert sink.reasons == []
    assert len(server.seen) == 1


@pytest.mark.parametrize("batch", ["1", "10"])
def test_a_record_on_which_the_server_fails_for_ever_can_be_given_up(
    make_sink: MakeSink, server: HttpServer, batch: str
) -> None:
    server.answer = lambda seen: (500, "bug") if b"3" in seen.body else None
    sink = make_sink(max_retries="2", batch_max_records=batch)
    records = [record(number, key="k") for number in range(6)]
    sink.put_until_taken(records)
    assert sink.reasons == [f"{server.url} answered 500 Internal Server Error: bug"]
    assert sink.reporter is not None
    assert sink.reporter.reported[0][0].value == 3
    assert [each for each in "".join(server.bodies) if each in "45"] == ["4", "5"] or batch != "1"


def test_a_server_that_is_away_is_waited_for(make_sink: MakeSink, server: HttpServer) -> None:
    sink = make_sink()
    sink.put(0)
    server.stop()
    records = [record(number) for number in range(1, 30)]
    for _ in range(3):
        with pytest.raises(
            RetriableException, match=rf"{server.url}: cannot connect: Connection refused$"
        ):
            sink.task.put(records)
        sink.now += sink.context.timeouts[-1] / 1000
    server.start()
    sink.put_until_taken(records)
    assert sorted(map(int, server.bodies)) == list(range(30))


def test_a_server_that_stays_away_fails_the_task_if_it_is_to(
    make_sink: MakeSink, server: HttpServer
) -> None:
    sink = make_sink(max_retries="1")
    server.stop()
    records = [record(1)]
    with pytest.raises(ConnectException, match="given up after 1 retries"):
        sink.put_until_taken(records)
    assert sink.reasons == []


@pytest.mark.parametrize("batch", ["1", "10"])
@pytest.mark.parametrize("how", ["drop", "hang"])
def test_a_record_that_the_server_never_answers_can_be_given_up(
    make_sink: MakeSink, server: HttpServer, how: str, batch: str
) -> None:
    server.ignores = lambda seen: how if b"3" in seen.body else None
    sink = make_sink(max_retries="1", batch_max_records=batch, request_timeout_ms=timeout_ms(how))
    sink.put_until_taken([record(number, key="k") for number in range(6)])
    assert sink.reporter is not None
    assert [each.value for each, _ in sink.reporter.reported] == [3]
    assert server.url in sink.reasons[0]
    assert [each for each in "".join(server.bodies) if each in "45"] == ["4", "5"] or batch != "1"


def test_a_server_that_answers_nothing_fails_the_task_if_it_is_to(
    make_sink: MakeSink, server: HttpServer
) -> None:
    server.ignores = lambda _: "hang"
    sink = make_sink(max_retries="1", request_timeout_ms="200")
    with pytest.raises(ConnectException, match="given up after 1 retries"):
        sink.put_until_taken([record(1)])
    assert sink.reasons == []


def test_an_idle_connection_that_was_closed_costs_nothing(
    make_sink: MakeSink, server: HttpServer
) -> None:
    sink = make_sink()
    for number in range(4):
        sink.put(number)
        server.stop()
        server.start()
    assert server.bodies == ["0", "1", "2", "3"]


@pytest.mark.parametrize("connections", ["1", "8"])
def test_a_server_that_closes_each_connection_is_not_away(
    make_sink: MakeSink, server: HttpServer, connections: str
) -> None:
    server.closes_connections = True
    sink = make_sink(connections_max=connections)
    for start in range(0, 200, 40):
        sink.task.put([record(number, key=number) for number in range(start, start + 40)])
    assert sorted(map(int, server.bodies)) == list(range(200))


def test_errors_without_a_number_are_told_in_words() -> None:
    # As aiohttp raises it for a connection that ends while a request is written.
    error = aiohttp.ClientOSError(None, "Can not write request body for http://127.0.0.1/in")
    assert text_of(error) == "the connection ended before the request was sent"
    assert text_of(ConnectionResetError(104, "Connection reset by peer")).startswith("[Errno 104]")


def test_an_answer_that_does_not_come_is_waited_for_so_long(
    make_sink: MakeSink, server: HttpServer
) -> None:
    server.ignores = lambda _: "hang"
    with pytest.raises(RetriableException, match=r"no answer within 0.1 s"):
        make_sink(request_timeout_ms="100").put(1)


def test_a_slow_server_does_not_keep_the_task_for_long(
    make_sink: MakeSink, server: HttpServer
) -> None:
    sink = make_sink(connections_max="1")
    server.answer = lambda _: setattr(sink, "now", sink.now + 4)
    records = [record(number, key="k") for number in range(8)]
    with pytest.raises(RetriableException, match="not all records are sent yet"):
        sink.task.put(records)
    assert server.bodies == ["0", "1", "2"]
    assert sink.context.timeouts == [0]
    assert sink.put_until_taken(records) == 2
    assert server.bodies == [str(number) for number in range(8)]


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        *((each, "-1") for each in STRANGERS),
        # A server whose answers break off, or do not end, is there: it may be the record.
        *((each, "2") for each, (_, ignored, _) in STRANGERS.items() if ignored is None),
    ],
)
def test_what_does_not_come_from_the_server_is_no_answer(
    make_sink: MakeSink, server: HttpServer, name: str, limit: str
) -> None:
    answer, ignored, told = STRANGERS[name]
    server.answer, server.ignores = lambda _: answer, lambda _: ignored
    sink = make_sink(
        template="phonetrack", request_timeout_ms=timeout_ms(ignored), max_retries=limit,
        batch_max_records="10",
    )  # fmt: skip
    records = [record(fix(number), key="k") for number in range(4)]
    for _ in range(2):
        with pytest.raises(RetriableException) as caught:
            sink.task.put(records)
        assert told in str(caught.value) and "secret" not in str(caught.value)
        sink.now += sink.context.timeouts[-1] / 1000
    if limit != "-1":
        # As if nobody answered: no record is reported.
        with pytest.raises(ConnectException, match="given up after 2 retries"):
            sink.task.put(records)
        assert sink.reasons == []
        return
    server.answer, server.ignores = lambda _: (200, '{"done":1}'), lambda _: None
    sink.put_until_taken(records)
    assert len(json.loads(server.bodies[-1])["points"]) == 4
    assert sink.reasons == []
    assert len({each.headers["Idempotency-Key"] for each in server.seen}) == 1


def test_an_answer_that_comes_in_pieces_is_read_to_its_end(
    make_sink: MakeSink, server: HttpServer
) -> None:
    server.answer = lambda _: (200, '{"friends":["' + "x" * 300_000 + '"],"done":1}')
    sink = make_sink(template="phonetrack")
    sink.put(fix(1))
    assert sink.reasons == []


@pytest.mark.parametrize("ignored", ["cut", "endless"])
def test_a_webhook_whose_success_does_not_end_is_asked_again(
    make_sink: MakeSink, server: HttpServer, ignored: str
) -> None:
    server.ignores = lambda _: ignored if len(server.seen) < 3 else None
    sink = make_sink(request_timeout_ms=timeout_ms(ignored))
    assert sink.put_until_taken([record({"a": 1}, key="k")]) == 3
    # A refusal is one as soon as it is said.
    server.answer, server.ignores = lambda _: (400, "bad"), lambda _: ignored
    sink.put({"a": 2})
    assert sink.reasons == [f"{server.url} answered 400 Bad Request: bad"]
