"""The task and a real server, without a worker."""

from __future__ import annotations

import json

import pytest

from consumers.connect.data.exceptions import ConnectException, RetriableException
from consumers.connect.http.answers.status import status_text
from consumers.connect.http.set_aside import RECORDS_MAX
from consumers.connect.plugins.sink_task import TopicPartition
from tests.consumers.connect.http.http_server import HttpServer, Seen
from tests.consumers.connect.http.running_sink import MakeSink
from tests.consumers.connect.sink_harness import fix, record


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
    from waylog.network.outbound.webhook_signature import signature_headers, signing_key

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
    # What it has taken makes the next pause short again.
    server.answer = lambda _: (500, "bug")
    with pytest.raises(RetriableException):
        sink.put({"a": 2})
    assert sink.context.timeouts[-1] == 1001


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


def test_not_more_requests_are_under_way_than_may_be(
    make_sink: MakeSink, server: HttpServer
) -> None:
    server.delay_s = 0.02
    make_sink(connections_max="3").put(*range(30))
    assert server.at_once_max == 3
    assert len({each.connection for each in server.seen}) == 3


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
