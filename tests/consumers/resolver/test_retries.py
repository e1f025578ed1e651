"""Addresses whose fallback did not answer are tried again, through the log."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from consumers.resolver.newest_fixes import NewestFixes
from consumers.resolver.resolver import Resolver
from consumers.resolver.retries import ATTEMPT_HEADER, DUE_HEADER, RETRY_TOPICS, Retries
from consumers.worker.records import OutputRecord, StateRecord
from geoservice.fallback.fallback import Cell, Fallback, FallbackSettings
from geoservice.reverse.geocoder import Geocoder, Place
from geoservice.reverse.watch import FixedGeocoder
from tests.consumers.resolver.test_resolver import BEGIN, Record, make_fix, record_of
from tests.consumers.running import Broker, Process, await_condition
from tests.consumers.worker.test_worker import Addresses, Reader, committed
from tests.odd_records import MALFORMED_VALUES
from waylog.kafka.clients import producer_config
from waylog.kafka.topics import ADDRESS, ERROR, LOCATION
from waylog.messages import decode_address, decode_fix, decode_rejected, encode

OCEAN = Place(place_id=0, type="ocean", name="O", display_name="Ocean", address={"ocean": "O"})
AT_SEA: dict[str, Any] = {"lat": 0.0, "lon": -30.0}


class Answers:
    """An AnswerStore whose test decides when it learns an answer."""

    def start(self, learn: Callable[[Cell, Place | None], None], loaded: threading.Event) -> None:
        self.learn = learn

    def put(self, cell: Cell, place: Place | None) -> None:
        pass

    def close(self) -> None:
        pass


class Silent:
    """A service that is never asked: the fallback waits for its stored answers."""

    def reverse(self, query: tuple[float, float], *, exactly_one: bool, timeout: float) -> None:
        raise TimeoutError


@pytest.fixture
def waiting() -> Iterator[tuple[Resolver, Answers]]:
    """Give a resolver whose fallback answers when the test wants it."""
    answers = Answers()
    settings = FallbackSettings(rate_per_s=1000, loading_s=600)
    fallback = Fallback("x", Silent(), store=answers, settings=settings)
    yield Resolver(FixedGeocoder(Geocoder.open()), fallback, retry_topics=RETRY_TOPICS), answers
    fallback.close()


def again(output: OutputRecord) -> Record:
    """Return a record of a retry topic as it is read."""
    assert output.partition is not None
    return Record(output.value, output.key, output.headers, output.partition)


def headers(output: OutputRecord) -> dict[str, bytes]:
    return dict(output.headers or [])


def by_topic(outputs: list[OutputRecord], topic: str) -> list[OutputRecord]:
    return [each for each in outputs if each.topic == topic]


def test_a_fix_goes_from_one_retry_to_the_next_and_then_to_topic_error(
    waiting: tuple[Resolver, Answers],
) -> None:
    resolver, _ = waiting
    states = {3: NewestFixes()}
    fix = make_fix(**AT_SEA)
    outputs = resolver.process({3: [record_of(fix, partition=3)]}, states, 1000)
    assert len(by_topic(outputs, ADDRESS)) == 1
    for number, (topic, delay_ms) in enumerate(RETRY_TOPICS, 1):
        [retry] = by_topic(outputs, topic)
        assert (retry.partition, retry.key) == (3, b"ann/phone")
        assert decode_fix(retry.value) == fix
        assert headers(retry) == {
            DUE_HEADER: b"%d" % (1000 + delay_ms), ATTEMPT_HEADER: b"%d" % number,
        }  # fmt: skip
        assert resolver.retries is not None
        assert resolver.retries.due_ms(again(retry)) == 1000 + delay_ms
        outputs = resolver.retries.process({3: [again(retry)]}, states, 1000)
        assert len(outputs) == 1
    [letter] = outputs
    rejected = decode_rejected(letter.value)
    assert (letter.topic, rejected.device) == (ERROR, "ann/phone")
    assert decode_fix(rejected.raw) == fix
    assert rejected.reason == "the fallback did not answer, nor in 3 retries"


@pytest.mark.parametrize("what", ["overtaken", "completed", "completed before a restart"])
def test_a_retry_that_is_not_needed_any_more_writes_nothing(
    waiting: tuple[Resolver, Answers], what: str
) -> None:
    resolver, answers = waiting
    states = {0: NewestFixes()}
    outputs = resolver.process({0: [record_of(make_fix(time=5, **AT_SEA))]}, states, 1)
    [retry] = by_topic(outputs, RETRY_TOPICS[0].name)
    if what == "overtaken":
        resolver.process({0: [record_of(make_fix(time=6))]}, states, 1)
    answers.learn((0, -30_000), OCEAN)
    late = resolver.late_results(states, 2)
    assert len(late) == (0 if what == "overtaken" else 1)
    if what == "completed before a restart":
        states = {0: NewestFixes()}
        states[0].restore([StateRecord(each.key, each.value) for each in late])
    assert resolver.retries is not None
    assert resolver.retries.process({0: [again(retry)]}, states, 3) == []


def test_a_retry_completes_an_address_after_a_restart(waiting: tuple[Resolver, Answers]) -> None:
    resolver, answers = waiting
    states = {0: NewestFixes()}
    outputs = resolver.process({0: [record_of(make_fix(**AT_SEA))]}, states, 1)
    [retry] = by_topic(outputs, RETRY_TOPICS[0].name)
    answers.learn((0, -30_000), OCEAN)
    # Another resolver has not waited for the answer.
    states = {0: NewestFixes()}
    states[0].restore([StateRecord(each.key, each.value) for each in by_topic(outputs, ADDRESS)])
    assert resolver.retries is not None
    [completed] = resolver.retries.process({0: [again(retry)]}, states, 9)
    address = decode_address(completed.value)
    assert (address.address, address.resolved) == ({"ocean": "O"}, 9)
    assert (completed.topic, completed.partition) == (ADDRESS, 0)
    assert resolver.retries.process({0: [again(retry)]}, states, 9) == []


def test_where_the_service_knows_nothing_it_is_not_asked_again(
    waiting: tuple[Resolver, Answers],
) -> None:
    resolver, answers = waiting
    states = {0: NewestFixes()}
    outputs = resolver.process({0: [record_of(make_fix(**AT_SEA))]}, states, 1)
    [retry] = by_topic(outputs, RETRY_TOPICS[0].name)
    answers.learn((0, -30_000), None)
    assert resolver.retries is not None
    assert resolver.retries.process({0: [again(retry)]}, states, 2) == []
    later = resolver.process({0: [record_of(make_fix(time=2000, **AT_SEA))]}, states, 3)
    assert [each.topic for each in later] == [ADDRESS]


@given(
    st.sampled_from(MALFORMED_VALUES) | st.binary(max_size=40),
    st.lists(
        st.tuples(st.sampled_from([DUE_HEADER, ATTEMPT_HEADER]), st.none() | st.binary(max_size=20))
    ),
)
def test_no_record_of_a_retry_topic_stops_the_others(
    value: bytes | None, told: list[tuple[str, Any]]
) -> None:
    retries = Retries(lambda fixes, states, now_ms: [], RETRY_TOPICS)
    record = Record(value, b"ann/phone", told)
    assert retries.due_ms(record) >= 0
    assert retries.process({0: [record]}, {0: NewestFixes()}, 1) == []


class Service:
    """A Nominatim that refuses as long as its test wants."""

    def __init__(self) -> None:
        self.refuses = True
        self.requests = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.requests += 1
                answer = {"lat": "0", "lon": "-30", "display_name": "Ocean, Earth", "address": {}}
                body = json.dumps(answer).encode()
                self.send_response(503 if service.refuses else 200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_an_address_is_completed_by_a_resolver_that_was_started_after_a_kill(
    broker: Broker, start_resolver: Callable[..., Process], guarantee: str
) -> None:
    service = Service()
    options = json.dumps({"domain": f"127.0.0.1:{service.server.server_port}", "scheme": "http"})
    words = (
        "--fallback", "nominatim", "--fallback-options", options,
        "--processing-guarantee", guarantee,
    )  # fmt: skip
    addresses = Addresses(broker)
    producer = Producer(producer_config(broker.address, "fixes"))

    def send(device: str, time: int, **where: float) -> None:
        producer.produce(LOCATION, encode(make_fix(device, time, **where)), device.encode())
        assert producer.flush(60) == 0

    def last(device: str) -> tuple[int, str] | None:
        addresses.read()
        found = addresses.last.get(device)
        return None if found is None else (found.time - BEGIN, found.display_name)

    retries = None
    try:
        first = start_resolver(*words)
        send("a/1", 1000, **AT_SEA)
        await_condition(lambda: last("a/1") and service.requests, 60, "the first address")
        retries = Reader(broker, RETRY_TOPICS[0].name)
        await_condition(retries.read, 60, "the fix in the retry topic")
        await_condition(lambda: committed(broker.address) == 1, 60, "its offset")
        first.stop(signal.SIGKILL)
        service.refuses = False
        start_resolver(*words)
        # Others do not wait for it.
        send("b/1", 2000)
        await_condition(lambda: last("b/1"), 60, "the address of another device")
        await_condition(lambda: last("a/1") == (1000, "Ocean, Earth"), 60, "the whole address")
        written = [decode_address(each.value()) for each in addresses.reader.records]
        assert [each.display_name for each in written if each.device == "a/1"][1:] == [
            "Ocean, Earth"
        ]
    finally:
        addresses.reader.close()
        if retries is not None:
            retries.close()
        service.close()
