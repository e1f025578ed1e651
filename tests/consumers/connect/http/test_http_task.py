"""The task and a real server, without a worker."""

from __future__ import annotations

import html
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.data.exceptions import ConnectException, RetriableException
from consumers.connect.data.records import SinkRecord
from consumers.connect.http.answers.status import status_text
from consumers.connect.http.http_sink import HttpSinkConnector
from consumers.connect.http.http_task import HttpSinkTask
from consumers.connect.http.sender import text_of
from consumers.connect.http.set_aside import RECORDS_MAX
from consumers.connect.plugins.registry import ConnectorRegistry
from consumers.connect.plugins.sink_task import TopicPartition
from tests.consumers.connect.http.http_server import HttpServer, Seen
from tests.consumers.connect.sink_harness import Context, Reporter, fix, record, run_task


class Sink:
    """A task that runs, on a clock that the test moves."""

    def __init__(self, reporter: Reporter | None, properties: dict[str, str]) -> None:
        self.now = 1000.0
        self.reporter = reporter
        self.task = HttpSinkTask(clock=lambda: self.now)
        self.context: Context = run_task(self.task, properties, reporter)

    def put(self, *values: Any, **more: Any) -> None:
        self.task.put([record(value, **more) for value in values])

    def put_until_taken(self, records: list[SinkRecord], rounds: int = 20) -> int:
        """Put records again, after the pauses that are asked for; return the rounds it took."""
        end = records[-1].offset + 1
        place = TopicPartition("t", 0)
        for number in range(1, rounds + 1):
            try:
                self.task.put(records)
            except RetriableException:
                self.now += self.context.timeouts[-1] / 1000
            else:
                if self.task.pre_commit({place: end})[place] == end:
                    return number
                # What was set aside is sent again when the task is called without records.
                self.now += self.context.timeouts[-1] / 1000
                records = []
        raise AssertionError("not taken")

    def committable(self, records: list[SinkRecord]) -> int:
        """Return the offset that the task lets be committed after these records."""
        place = TopicPartition("t", 0)
        return self.task.pre_commit({place: records[-1].offset + 1})[place]

    @property
    def reasons(self) -> list[str]:
        assert self.reporter is not None
        return self.reporter.reasons


MakeSink = Callable[..., Sink]


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer().running() as server:
        yield server


@pytest.fixture
def make_sink(server: HttpServer) -> Iterator[MakeSink]:
    made: list[Sink] = []

    def make(*, reports: bool = True, **properties: str) -> Sink:
        given = {name.replace("__", "-").replace("_", "."): properties[name] for name in properties}
        made.append(Sink(Reporter() if reports else None, {"url": server.url + "/in", **given}))
        return made[-1]

    yield make
    for each in made:
        each.task.stop()


def test_each_record_is_a_request(make_sink: MakeSink, server: HttpServer) -> None:
    sink = make_sink(headers_X__Api__Key="abc", content_type="application/vnd.x+json")
    sink.put({"a": 1}, key="k")
    sink.put("text", key="k")
    assert server.bodies == ['{"a":1}', "text"]
    first, second = server.seen
    assert (first.method, first.path) == ("POST", "/in")
    assert first.headers["X-Api-Key"] == "abc"
    assert first.headers["Content-Type"] == "application/vnd.x+json"
    assert first.headers["User-Agent"] == "waylog-connect"
    assert first.headers["Idempotency-Key"] != second.headers["Idempotency-Key"]
    assert first.connection == second.connection


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (
            {
                "authorization_type": "basic",
                "connection_user": "änna",
                "connection_password": "pass:wörd",
            },
            "Basic w6RubmE6cGFzczp3w7ZyZA==",
        ),
        ({"authorization_type": "bearer", "bearer_token": "abc.def"}, "Bearer abc.def"),
    ],
)
def test_requests_are_authorized(
    make_sink: MakeSink, server: HttpServer, properties: dict[str, str], expected: str
) -> None:
    make_sink(**properties).put({"a": 1})
    assert server.seen[0].headers["Authorization"] == expected


def test_a_webhook_is_signed(make_sink: MakeSink, server: HttpServer) -> None:
    from consumers.connect.http.signature import signature_headers, signing_key

    make_sink(signature_secret="geheim").put({"a": 1})
    (seen,) = server.seen
    headers = {name.lower(): value for name, value in seen.headers.items()}
    assert headers["webhook-id"] == headers["idempotency-key"]
    expected = signature_headers(
        signing_key("geheim"), headers["webhook-id"], int(headers["webhook-timestamp"]), seen.body
    )
    assert headers.items() >= expected.items()


def test_cookies_of_an_answer_do_not_come_with_the_next_request(
    make_sink: MakeSink, server: HttpServer
) -> None:
    server.answer = lambda _: (200, "ok", {"Set-Cookie": "session=of-another-user; Path=/"})
    # A name: of addresses cookies are seldom kept.
    make_sink(url=f"http://localhost:{server.port}/in").put(1, 2, key="k")
    assert server.bodies == ["1", "2"]
    assert not [each for each in server.seen if "Cookie" in each.headers]


def test_the_key_stays_the_same_when_a_request_is_repeated(
    make_sink: MakeSink, server: HttpServer
) -> None:
    server.answer = lambda _: (503, "busy") if len(server.seen) < 4 else None
    records = [record({"a": 1}, key="k")]
    assert make_sink().put_until_taken(records) == 4
    make_sink().put_until_taken(records)
    assert len(server.seen) == 5
    assert len({each.headers["Idempotency-Key"] for each in server.seen}) == 1


def test_what_was_delivered_is_not_sent_again_with_the_rest(
    make_sink: MakeSink, server: HttpServer
) -> None:
    server.answer = lambda seen: (
        (500, "bug") if seen.body == b"7" and len(server.seen) < 25 else None
    )
    records = [record(number, key=f"k{number % 5}") for number in range(20)]
    make_sink().put_until_taken(records)
    sent = [each for each in server.bodies if each != "7"]
    assert sorted(sent, key=int) == [str(number) for number in range(20) if number != 7]
    for key in range(5):
        of_key = [int(each) for each in server.bodies if int(each) % 5 == key]
        assert of_key == sorted(of_key)


def test_a_record_on_which_the_server_fails_for_ever_stops_no_other_key(
    make_sink: MakeSink, server: HttpServer
) -> None:
    server.answer = lambda seen: (503, "bug") if b"bad" in seen.body else None
    sink = make_sink()
    first = [record(each, key=each) for each in ("bad", "a", "b")]
    with pytest.raises(RetriableException):
        sink.task.put(first)
    sink.now += 2
    sink.task.put(first)
    second = [record("c", key="c"), record("behind", key="bad"), record("d", key="d")]
    sink.task.put(second)
    assert sorted(each for each in server.bodies if each != "bad") == ["a", "b", "c", "d"]
    assert sink.committable(second) == first[0].offset
    # It is sent again when it is due, even if no other record comes.
    tries = server.bodies.count("bad")
    sink.task.put([])
    assert server.bodies.count("bad") == tries
    sink.now += sink.context.timeouts[-1] / 1000
    sink.task.put([])
    assert server.bodies.count("bad") == tries + 1
    server.answer = lambda _: None
    sink.now += sink.context.timeouts[-1] / 1000
    sink.task.put([])
    assert server.bodies[-2:] == ["bad", "behind"]
    assert sink.committable(second) == second[-1].offset + 1
    assert not sink.reasons


def test_what_is_set_aside_takes_bounded_memory(make_sink: MakeSink, server: HttpServer) -> None:
    server.answer = lambda seen: (503, "bug") if b"bad" in seen.body else None
    sink = make_sink()
    first = [record("bad", key="bad"), record("a", key="a")]
    with pytest.raises(RetriableException):
        sink.task.put(first)
    sink.now += 2
    sink.task.put(first)
    sink.put(*range(RECORDS_MAX - 1), key="bad")
    more = [record("x", key="bad"), record("other", key="x")]
    with pytest.raises(RetriableException, match="no more are read"):
        sink.task.put(more)
    assert server.bodies[-1] == "other"
    server.answer = lambda _: None
    sink.now += 60
    with pytest.raises(RetriableException):
        sink.task.put(more)
    sink.put_until_taken(more)
    expected = ["bad", *map(str, range(RECORDS_MAX - 1)), "x"]
    assert [each for each in server.bodies[-1 - RECORDS_MAX :] if each != "other"] == expected


def test_erasures_have_what_is_set_aside_come_again(
    make_sink: MakeSink, server: HttpServer
) -> None:
    server.answer = lambda seen: (503, "bug") if b"bad" in seen.body else None
    sink = make_sink()
    first = [record("bad", key="bad"), record("a", key="a")]
    with pytest.raises(RetriableException):
        sink.task.put(first)
    sink.now += 2
    sink.task.put(first)
    sink.task.erase({"bad": 1})
    assert sink.context.rewound == {TopicPartition("t", 0): first[0].offset}
    server.answer = lambda _: None
    sink.now += 60
    sink.task.put([])
    assert sink.committable(first) == first[-1].offset + 1
    assert server.bodies.count("bad") == 2


def test_of_one_large_batch_no_more_is_set_aside_than_fits(
    make_sink: MakeSink, server: HttpServer
) -> None:
    server.answer = lambda seen: (503, "bug") if b"bad" in seen.body else None
    sink = make_sink()
    first = [record("bad", key="bad"), record("a", key="a")]
    with pytest.raises(RetriableException):
        sink.task.put(first)
    sink.now += 2
    sink.task.put(first)
    with pytest.raises(RetriableException, match=f"not take {RECORDS_MAX} records"):
        sink.put(*range(RECORDS_MAX + 5), key="bad")


def test_pauses_grow_and_the_server_may_ask_for_more(
    make_sink: MakeSink, server: HttpServer
) -> None:
    sink = make_sink(retry_backoff_ms="1000", retry_backoff_max_ms="5000")
    server.answer = lambda _: (500, "bug")
    records = [record({"a": 1})]
    with pytest.raises(AssertionError, match="not taken"):
        sink.put_until_taken(records, 5)
    assert sink.context.timeouts == [1001, 2001, 4001, 5001, 5001]
    server.answer = lambda _: (429, "slow down", {"Retry-After": "30"})
    with pytest.raises(RetriableException, match=r"answered 429 Too Many Requests: slow down"):
        sink.task.put(records)
    assert sink.context.timeouts[-1] == 30_001
    seen = len(server.seen)
    sink.now += 10
    with pytest.raises(RetriableException, match="asked again later"):
        sink.task.put(records)
    assert len(server.seen) == seen
    assert sink.context.timeouts[-1] == 20_001
    server.answer = lambda _: None
    sink.now += 21
    sink.task.put(records)


def test_of_several_pauses_that_a_server_asks_for_the_longest_is_kept(
    make_sink: MakeSink, server: HttpServer
) -> None:
    pauses = {b"short": "2", b"long": "30", b"none": ""}
    server.answer = lambda seen: (429, "slow down", {"Retry-After": pauses[seen.body]})
    sink = make_sink(connections="1", retry_backoff_ms="1000")
    for order in (("short", "long", "none"), ("long", "short", "none"), ("none", "short", "long")):
        with pytest.raises(RetriableException):
            sink.task.put([record(each, key=each) for each in order])
        assert 30_000 <= sink.context.timeouts[-1] <= 30_001
        sink.now += 31


def test_what_waits_behind_others_is_sent_once_though_its_batch_comes_again(
    make_sink: MakeSink, server: HttpServer
) -> None:
    failing = [b"bad", b"x"]
    server.answer = lambda seen: (503, "bug") if seen.body in failing else None
    sink = make_sink()
    first = [record("bad", key="bad"), record("a", key="a")]
    with pytest.raises(RetriableException):
        sink.task.put(first)
    sink.now += 2
    sink.task.put(first)
    second = [record("behind", key="bad"), record("x", key="x")]
    with pytest.raises(RetriableException):
        sink.task.put(second)
    failing.clear()
    sink.put_until_taken(second)
    assert server.bodies.count("behind") == 1
    assert sink.committable(second) == second[-1].offset + 1


def test_a_refused_record_is_reported_and_the_others_go_on(
    make_sink: MakeSink, server: HttpServer
) -> None:
    server.answer = lambda seen: (422, "no\r\n such\tdevice") if seen.body == b"3" else None
    sink = make_sink(connections_max="1")
    sink.put(*range(6), key="k")
    assert server.bodies == [str(number) for number in range(6)]
    (reason,) = sink.reasons
    assert reason == f"{server.url} answered {status_text(422)}: no such device"


def test_of_a_refused_batch_the_bad_record_is_found(
    make_sink: MakeSink, server: HttpServer
) -> None:
    def answer(seen: Seen) -> tuple[int, str] | None:
        return (400, "bad") if {"a": 13} in json.loads(seen.body) else None

    server.answer = answer
    sink = make_sink(batch_max_records="20")
    sink.put(*({"a": number} for number in range(20)), key="k")
    assert len(sink.reasons) == 1
    taken = [
        each["a"] for seen in server.seen if answer(seen) is None for each in json.loads(seen.body)
    ]
    assert taken == [number for number in range(20) if number != 13]


def test_without_dead_letters_a_refused_record_fails_the_task(
    make_sink: MakeSink, server: HttpServer
) -> None:
    server.answer = lambda _: (400, "bad")
    with pytest.raises(ConnectException, match="400 Bad Request: bad"):
        make_sink(reports=False).put({"a": 1})


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
    sink = make_sink(max_retries="1", batch_max_records=batch, request_timeout_ms="300")
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
    server.delay_s = 2.0
    with pytest.raises(RetriableException, match=r"no answer within 0.1 s"):
        make_sink(request_timeout_ms="100").put(1)


def test_not_more_requests_are_under_way_than_may_be(
    make_sink: MakeSink, server: HttpServer
) -> None:
    server.delay_s = 0.02
    make_sink(connections_max="3").put(*range(30))
    assert server.at_once_max == 3
    assert len({each.connection for each in server.seen}) == 3


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


def test_records_without_a_value(make_sink: MakeSink, server: HttpServer) -> None:
    make_sink().put(None, 1)
    failing = make_sink(behavior_on_null_values="fail")
    failing.put(None, 2)
    assert failing.reasons == ["the record has no value"]
    deleting = make_sink(
        url=server.url + "/devices/${@key}", behavior_on_null_values="delete", batch_max_records="5"
    )
    deleting.put(3, None, 4, key="anna/phone")
    assert [(each.method, each.path, each.body) for each in server.seen[2:]] == [
        ("POST", "/devices/anna%2Fphone", b"[3]"),
        ("DELETE", "/devices/anna%2Fphone", b""),
        ("POST", "/devices/anna%2Fphone", b"[4]"),
    ]


def test_positions_go_to_a_server_by_its_template(make_sink: MakeSink, server: HttpServer) -> None:
    server.answer = lambda _: (200, '{"done":1}')
    sink = make_sink(template="phonetrack", url=server.url + "/logPostMultiple/T")
    fixes = [fix(number, f"anna/{number % 2}") for number in range(6)]
    sink.task.put(
        [
            record(each, key=each["device"])
            for each in [*fixes, {"no": "position"}]
            for _ in [0]
            if "device" in each
        ]
    )
    assert sorted((each.path, len(json.loads(each.body)["points"])) for each in server.seen) == [
        ("/logPostMultiple/T/anna-0", 3),
        ("/logPostMultiple/T/anna-1", 3),
    ]
    sink.put({"no": "position"})
    assert "the record is no position" in sink.reasons[0]
    server.answer = lambda _: (200, '{"done":3}')
    with pytest.raises(ConnectException, match=r"answered 200 OK, PhoneTrack answers done=3"):
        sink.put(fix(9))
    assert len(sink.reasons) == 1


#: What stands in a server's place, or what it begins to say: the status is one of success.
STRANGERS: dict[str, tuple[Any, str | None, str]] = {
    "a page": ((200, "<!DOCTYPE html>secret", {"Content-Type": "text/html"}), None, "text/html"),
    "a refused page": ((404, "<html>gone", {"Content-Type": "text/html"}), None, "<html>gone"),
    "nothing": ((204, ""), None, "204 No Content with nothing"),
    "a cut": ((200, '{"done":1}'), "cut", "the answer has broken off"),
    "no end": ((200, '{"done":1}'), "endless", "the answer has not ended within 0.4 s"),
}


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
        template="phonetrack", request_timeout_ms="400", max_retries=limit,
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
    sink = make_sink(request_timeout_ms="400")
    assert sink.put_until_taken([record({"a": 1}, key="k")]) == 3
    # A refusal is one as soon as it is said.
    server.answer, server.ignores = lambda _: (400, "bad"), lambda _: ignored
    sink.put({"a": 2})
    assert sink.reasons == [f"{server.url} answered 400 Bad Request: bad"]


def test_partitions_that_come_again_are_sent_again(make_sink: MakeSink, server: HttpServer) -> None:
    sink = make_sink()
    server.answer = lambda seen: (500, "bug") if seen.body == b"1" else None
    records = [record(0, key="a"), record(1, key="b")]
    with pytest.raises(RetriableException):
        sink.task.put(records)
    sink.task.close([TopicPartition("t", 0)])
    server.answer = lambda _: None
    sink.put_until_taken(records)
    assert sorted(server.bodies) == ["0", "0", "1", "1"]


def test_secrets_are_in_no_message(
    make_sink: MakeSink, server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = ["s3cr3t-path-token", "s3cr3t-query", "s3cr3t-bearer", "s3cr3t-header"]
    sink = make_sink(
        url=f"{server.url}/hook/{secrets[0]}?key={secrets[1]}",
        authorization_type="bearer",
        bearer_token=secrets[2],
        headers_X__Key=secrets[3],
        max_retries="0",
    )
    server.answer = lambda seen: (400, f"{seen.path} {seen.headers}")
    sink.put(1)
    server.answer = lambda seen: (500, f"{seen.path} {seen.headers}")
    sink.put(2)
    server.stop()
    with pytest.raises(ConnectException) as raised:
        sink.put(3)
    assert len(sink.reasons) == 2
    text = "".join(sink.reasons) + str(raised.value) + caplog.text
    assert not [each for each in secrets if each in text]


def test_secrets_are_in_no_message_about_an_answer_that_is_none_of_http(
    make_sink: MakeSink,
) -> None:
    secret = "s3cr3t-bearer"

    def answer(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.recv(64 * 1024)
                connection.sendall(b"HTTP/1.1 200 OK\r\nyou sent " + secret.encode() + b"\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/in"
        sink = make_sink(url=url, authorization_type="bearer", bearer_token=secret, max_retries="0")
        with pytest.raises(ConnectException) as raised:
            sink.put(1)
        thread.join(10)
    assert "you sent [hidden]" in str(raised.value)
    assert secret not in str(raised.value)


@pytest.mark.parametrize(
    "form", [json.dumps, html.escape, quote, lambda text: html.escape(text, quote=False)]
)
def test_a_secret_is_hidden_however_the_server_escapes_it(
    make_sink: MakeSink, server: HttpServer, form: Callable[[str], str]
) -> None:
    secret = "abc\"d<e>f&gh'ij/k"
    sink = make_sink(headers_X__Key=secret)
    server.answer = lambda _: (400, f"your key is {form(secret)} or so")
    sink.put(1)
    assert "your key is" in sink.reasons[0]
    assert "abc" not in sink.reasons[0]


def errors(**properties: str) -> dict[str, list[str]]:
    given = {"url": "https://h/x"} | {
        name.replace("__", "-").replace("_", "."): value for name, value in properties.items()
    }
    found = HttpSinkConnector().validate(given)
    return {name: value.errors for name, value in found.items() if value.errors}


@pytest.mark.parametrize(
    ("properties", "name", "reason"),
    [
        ({"url": "ftp://h"}, "url", "http://HOST"),
        ({"url": "https://"}, "url", "http://HOST"),
        ({"url": "https://h:99999/"}, "url", "not a URL"),
        ({"url": "https://${x}/"}, "url", "cannot depend on the record"),
        ({"url": "https://a:s3cr3t@h/"}, "url", "connection.password"),
        ({"url": "https://h/a b"}, "url", "percent-encoded"),
        ({"url": "https://h/${@x}"}, "url", "none of @key"),
        ({"url": "https://h/${id}", "behavior_on_null_values": "delete"},
         "behavior.on.null.values", "has no ${id}"),
        ({"template": "tracar"}, "template", "must be one of: none, traccar"),
        ({"method": "TRACE"}, "method", "must be one of"),
        ({"authorization_type": "basic"}, "connection.user", "needs it"),
        ({"authorization_type": "bearer"}, "bearer.token", "needs it"),
        ({"authorization_type": "bearer", "bearer_token": "a\nb"}, "bearer.token", "control"),
        ({"template": "traccar", "batch_max_records": "5"}, "batch.max.records", "one record"),
        ({"method": "GET", "batch_max_records": "5"}, "batch.max.records", "one record"),
        ({"template": "traccar", "body_template": "x"}, "body.template", "makes the body"),
        ({"template": "traccar", "behavior_on_null_values": "delete"},
         "behavior.on.null.values", "deletes nothing"),
        ({"body_template": "${}"}, "body.template", "has no name"),
        ({"device_names": "anna"}, "device.names", "USER/DEVICE=NAME"),
        ({"signature_secret": "whsec_!"}, "signature.secret", "not Base64"),
        ({"headers_Host": "x"}, "headers.Host", "writes this header itself"),
        ({"headers_a b": "x"}, "headers.a b", "no name of a header"),
        ({"headers_X": "a\r\nB: c"}, "headers.X", "control characters"),
        ({"connections_max": "0"}, "connections.max", "at least 1"),
        ({"request_timeout_ms": "1"}, "request.timeout.ms", "at least 100"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(properties: dict[str, str], name: str, reason: str) -> None:
    found = errors(**properties)
    assert list(found) == [name]
    assert reason in found[name][0]
    assert name in found[name][0]
    assert "s3cr3t" not in str(found)
    given = {"url": "https://h/x"} | {
        each.replace("__", "-").replace("_", "."): value for each, value in properties.items()
    }
    with pytest.raises(ConfigException):
        HttpSinkConnector().start(given)


def test_the_url_is_all_that_is_required() -> None:
    assert errors() == {}
    assert (
        'Missing required configuration "url"' in HttpSinkConnector().validate({})["url"].errors[0]
    )


@pytest.mark.parametrize("name", ["HttpSink", "HttpSinkConnector"])
def test_the_connector_is_found_by_its_names(name: str) -> None:
    assert ConnectorRegistry().find(name).connector is HttpSinkConnector
