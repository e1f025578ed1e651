"""The fallback's answers in the log, and addresses that come after their fixes' first ones."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from consumers.resolver.newest_fixes import NewestFixes
from consumers.resolver.resolver import Resolver
from geoservice.fallback.answer_log import GEOCODED, AnswerLog
from geoservice.fallback.fallback import Cell, Fallback, FallbackSettings
from geoservice.reverse.geocoder import Geocoder, Place
from geoservice.reverse.watch import FixedGeocoder
from tests.consumers.resolver.test_resolver import BEGIN, make_fix, record_of
from tests.consumers.running import Broker, Process, await_condition
from tests.consumers.worker.test_worker import Addresses, Reader
from tests.dying_threads import assert_process_ends
from waylog.kafka.clients import producer_config
from waylog.kafka.topics import LOCATION
from waylog.messages import decode_address, encode

OCEAN = Place(place_id=0, type="ocean", name="O", display_name="Ocean", address={"ocean": "O"})


class Answers:
    """An AnswerStore whose test decides when it learns an answer."""

    def start(self, learn: Callable[[Cell, Place | None], None], loaded: threading.Event) -> None:
        self.learn = learn
        loaded.set()

    def put(self, cell: Cell, place: Place | None) -> None:
        pass

    def close(self) -> None:
        pass


class Silent:
    """A service that never answers."""

    def __init__(self) -> None:
        self.closing = threading.Event()

    def reverse(self, query: tuple[float, float], *, exactly_one: bool, timeout: float) -> None:
        self.closing.wait(60)
        raise TimeoutError


@pytest.fixture
def waiting() -> Iterator[tuple[Resolver, Answers]]:
    """Give a resolver whose fallback has not answered yet."""
    answers, silent = Answers(), Silent()
    fallback = Fallback("x", silent, store=answers, settings=FallbackSettings(rate_per_s=1000))
    yield Resolver(FixedGeocoder(Geocoder.open()), fallback), answers
    silent.closing.set()
    fallback.close()


def test_an_address_that_comes_late_is_written_when_it_comes(
    waiting: tuple[Resolver, Answers],
) -> None:
    resolver, answers = waiting
    states = {3: NewestFixes()}
    fix = make_fix(lat=0.0, lon=-30.0)
    [first] = resolver.process({3: [record_of(fix, partition=3)]}, states, 1)
    assert decode_address(first.value).address == {}
    assert resolver.late_results(states, 2) == []
    answers.learn((0, -30_000), OCEAN)
    [late] = resolver.late_results(states, 2)
    assert (late.partition, late.key) == (3, b"ann/phone")
    address = decode_address(late.value)
    assert (address.fix_id, address.address, address.resolved) == (fix.id, {"ocean": "O"}, 2)
    assert address.index_version.endswith("+x")
    assert resolver.late_results(states, 3) == []


@pytest.mark.parametrize("what", ["overtaken", "given away"])
def test_a_late_address_does_not_replace_a_newer_one(
    waiting: tuple[Resolver, Answers], what: str
) -> None:
    resolver, answers = waiting
    states = {0: NewestFixes()}
    resolver.process({0: [record_of(make_fix(time=5, lat=0.0, lon=-30.0))]}, states, 1)
    if what == "overtaken":
        resolver.process({0: [record_of(make_fix(time=6))]}, states, 1)
    else:
        states = {}
    answers.learn((0, -30_000), OCEAN)
    assert resolver.late_results(states, 2) == []


def test_answers_come_back_from_the_log(broker: Broker) -> None:
    def read(service: str) -> dict[Cell, Place | None]:
        found: dict[Cell, Place | None] = {}
        loaded = threading.Event()
        log = AnswerLog(broker.address, service)
        log.start(found.__setitem__, loaded)
        try:
            assert loaded.wait(60)
        finally:
            log.close()
        return found

    assert read("one") == {}
    log = AnswerLog(broker.address, "one")
    log.put((1, 2), OCEAN)
    log.put((1, 3), None)
    log.put((1, 2), None)
    log.close()
    other = AnswerLog(broker.address, "other")
    other.put((9, 9), None)
    other.close()
    garbage = Producer(producer_config(broker.address, "garbage"))
    for value in (b"garbage", b'{"service": "\xff"}', None):
        garbage.produce(GEOCODED, value, b"x", partition=0)
    assert garbage.flush(60) == 0
    assert read("one") == {(1, 2): None, (1, 3): None}
    assert read("other") == {(9, 9): None}


def test_another_process_learns_what_one_has_asked(broker: Broker) -> None:
    found: dict[Cell, Place | None] = {}
    loaded = threading.Event()
    reading, writing = AnswerLog(broker.address, "s"), AnswerLog(broker.address, "s")
    reading.start(found.__setitem__, loaded)
    try:
        assert loaded.wait(60)
        writing.put((1, 2), OCEAN)
        await_condition(lambda: found == {(1, 2): OCEAN}, 60, "the other's answer")
    finally:
        reading.close()
        writing.close()


def test_a_log_that_is_away_keeps_nobody_waiting() -> None:
    log = AnswerLog("127.0.0.1:9", "s")
    began = time.monotonic()
    log.start(lambda _cell, _place: None, threading.Event())
    log.put((1, 2), None)
    log.close()
    assert time.monotonic() - began < 20


def test_a_resolver_asks_once_and_the_next_one_remembers(
    broker: Broker,
    start_resolver: Callable[..., Process],
    nominatim: tuple[str, list[str]],
    tmp_path: Path,
) -> None:
    domain, requests = nominatim
    options = json.dumps({"domain": domain, "scheme": "http"})
    words = ("--fallback", "nominatim", "--fallback-options", options)
    first = start_resolver(*words)
    addresses = Addresses(broker)
    kept = None
    producer = Producer(producer_config(broker.address, "fixes"))

    def send(device: str, time: int) -> None:
        producer.produce(LOCATION, encode(make_fix(device, time, 0.0, lon=-30.0)), device.encode())
        assert producer.flush(60) == 0

    def named(device: str, time: int) -> bool:
        addresses.read()
        last = addresses.last.get(device)
        return last is not None and (last.time - BEGIN, last.display_name) == (time, "Ocean, Earth")

    try:
        send("a/1", 1000)
        await_condition(lambda: named("a/1", 1000), 60, "the late address of a fix")
        kept = Reader(broker, GEOCODED)
        await_condition(lambda: len(kept.read()) == 1, 60, "the answer in the log")
        assert first.stop() == 0
        start_resolver(*words)
        send("b/1", 2000)
        await_condition(lambda: named("b/1", 2000), 60, "the address of another device")
        assert len(requests) == 1
    finally:
        addresses.reader.close()
        if kept is not None:
            kept.close()


def test_answers_whose_reading_failed_are_read_again(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    log = AnswerLog(broker.address, "s")
    log.put((1, 2), OCEAN)
    log.close()
    found: dict[Cell, Place | None] = {}
    failures = [ValueError("a bug"), ValueError("a bug")]

    def learn(cell: Cell, place: Place | None) -> None:
        if failures:
            raise failures.pop()
        found[cell] = place

    reading = AnswerLog(broker.address, "s")
    loaded = threading.Event()
    reading.start(learn, loaded)
    try:
        assert loaded.wait(60)
        await_condition(lambda: found == {(1, 2): OCEAN}, 60, "the answer")
    finally:
        reading.close()
    said = "reading the answers of s from the log failed; it is tried again\nTraceback"
    assert caplog.text.count(said) == 1


def test_a_thread_that_reads_answers_takes_its_process_with_it() -> None:
    assert_process_ends(
        """
        from geoservice.fallback import answer_log
        answer_log.ensure_topics = die
        answer_log.AnswerLog("127.0.0.1:1", "s").start(print, threading.Event())
        """,
        "geocoded",
    )
