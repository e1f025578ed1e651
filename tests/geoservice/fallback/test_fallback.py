"""The fallback with a real HTTP server, also a slow and a broken one."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from geoservice.fallback.fallback import (
    AnswerStore,
    Cell,
    CircuitBreaker,
    Fallback,
    FallbackSettings,
    add_arguments,
    from_arguments,
)
from geoservice.reverse.geocoder import Geocoder, Place
from tests.dying_threads import assert_process_ends
from waylog.config import ConfigError


class Service:
    """A stand-in for an external Nominatim."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.status = 200
        self.answering = threading.Event()
        self.answering.set()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.requests.append(self.path)
                service.answering.wait(60)
                body = json.dumps(
                    {"lat": "0", "lon": "-30", "display_name": "Ocean, Earth",
                     "address": {"ocean": "Ocean", "n": 3}, "addresstype": "ocean"}
                ).encode()  # fmt: skip
                self.send_response(service.status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.domain = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self.answering.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


@pytest.fixture
def make(service: Service) -> Iterator[Callable[..., Fallback]]:
    from geopy.geocoders import Nominatim

    made: list[Fallback] = []

    def make(
        wait_s: float = 60.0,
        store: AnswerStore | None = None,
        for_towns: bool = False,
        **settings: float,
    ) -> Fallback:
        nominatim = Nominatim(domain=service.domain, scheme="http", user_agent="waylog-test")
        limits = FallbackSettings(**({"rate_per_s": 1000.0} | settings))  # type: ignore[arg-type]
        fallback = Fallback(
            "nominatim", nominatim, wait_s=wait_s, settings=limits, store=store,
            for_towns=for_towns,
        )  # fmt: skip
        made.append(fallback)
        return made[-1]

    yield make
    for fallback in made:
        fallback.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_only_points_without_a_place_are_asked(
    service: Service, make: Callable[..., Fallback], geocoder: Geocoder
) -> None:
    results = geocoder.reverse_batch([47.141, 0.0], [9.5209, -30.0])
    completed = make().complete(results)
    assert completed[0] is results[0]
    assert completed[1].display_name == "Ocean, Earth"
    assert completed[1].address == {"ocean": "Ocean"}
    assert completed[1].index_version == f"{geocoder.index_version}+nominatim"
    assert len(service.requests) == 1


def test_points_of_one_cell_are_asked_once(
    service: Service, make: Callable[..., Fallback], geocoder: Geocoder
) -> None:
    fallback = make()
    for _ in range(3):
        near = geocoder.reverse_batch([0.0, 0.0001], [-30.0, -30.0001])
        assert all(result.found for result in fallback.complete(near))
    assert len(service.requests) == 1


def test_where_only_the_town_is_known_it_asks_if_it_is_told_to(
    service: Service, make: Callable[..., Fallback], geocoder: Geocoder
) -> None:
    [vaduz] = make(for_towns=True).complete([geocoder.reverse(47.141, 9.5209)])
    assert vaduz.display_name == "Ocean, Earth"


def test_an_answer_that_came_late_can_be_asked_for_without_asking_the_service(
    service: Service, make: Callable[..., Fallback], geocoder: Geocoder
) -> None:
    service.answering.clear()
    fallback = make(wait_s=0.0)
    result = geocoder.reverse(0.0, -30.0)
    fallback.complete([result])
    assert fallback.is_awaited(result)
    assert (fallback.answered, fallback.answer(result)) == (0, None)
    service.answering.set()
    until(lambda: fallback.answered)
    late = fallback.answer(result)
    assert late is not None and late.display_name == "Ocean, Earth"
    assert not fallback.is_awaited(result)
    assert len(service.requests) == 1


class Kept:
    """A store with the answers of other processes and of earlier days."""

    def __init__(self, answers: dict[Cell, Place | None]) -> None:
        self._answers = answers
        self.put_: list[tuple[Cell, Place | None]] = []
        self.closed = False

    def start(self, learn: Callable[[Cell, Place | None], None], loaded: threading.Event) -> None:
        for cell, place in self._answers.items():
            learn(cell, place)
        loaded.set()

    def put(self, cell: Cell, place: Place | None) -> None:
        self.put_.append((cell, place))

    def close(self) -> None:
        self.closed = True


def test_what_is_kept_is_not_asked_again_and_what_is_answered_is_kept(
    service: Service, make: Callable[..., Fallback], geocoder: Geocoder
) -> None:
    known = Place(place_id=0, type="ocean", name="A", display_name="Atlantic", address={})
    kept = Kept({(0, -30_000): known, (0, -32_000): None})
    fallback = make(store=kept)
    results = fallback.complete(geocoder.reverse_batch([0.0] * 3, [-30.0, -31.0, -32.0]))
    assert [result.display_name for result in results] == [
        "Atlantic", "Ocean, Earth", "0.000 N, 32.000 W",
    ]  # fmt: skip
    assert len(service.requests) == 1
    [(cell, place)] = kept.put_
    assert cell == (0, -31_000) and place is not None
    fallback.close()
    assert kept.closed


def test_nobody_waits_longer_than_asked_and_a_late_answer_is_kept(
    service: Service, make: Callable[..., Fallback], geocoder: Geocoder
) -> None:
    service.answering.clear()
    fallback = make(wait_s=0.05)
    result = geocoder.reverse(0.0, -30.0)
    # The service has not been let to answer: whoever waited for it would not be here.
    assert fallback.complete([result]) == [result]
    assert fallback.is_awaited(result)
    service.answering.set()
    until(lambda: fallback.complete([result])[0].found)
    assert len(service.requests) == 1


def test_without_waiting_the_next_question_is_answered(
    make: Callable[..., Fallback], geocoder: Geocoder
) -> None:
    fallback = make(wait_s=0.0)
    result = geocoder.reverse(0.0, -30.0)
    assert fallback.complete([result]) == [result]
    until(lambda: fallback.complete([result])[0].found)


def test_requests_keep_to_the_rate(
    service: Service, make: Callable[..., Fallback], geocoder: Geocoder
) -> None:
    fallback = make(rate_per_s=20.0)
    started = time.monotonic()
    results = geocoder.reverse_batch([0.0] * 5, [-30.0, -31.0, -32.0, -33.0, -34.0])
    assert all(result.found for result in fallback.complete(results))
    assert time.monotonic() - started > 4 / 20 - 0.01


def test_a_full_queue_refuses_and_does_not_grow(
    service: Service, make: Callable[..., Fallback], geocoder: Geocoder
) -> None:
    service.answering.clear()
    fallback = make(wait_s=0.0, queue_cells_max=3)
    lons = [-40.0 + number for number in range(20)]
    fallback.complete(geocoder.reverse_batch([-20.0] * 20, [min(lon, -21.0) for lon in lons]))
    assert len(fallback._waiting) <= 4
    assert fallback._queue.qsize() <= 3


def test_the_cache_is_bounded(make: Callable[..., Fallback], geocoder: Geocoder) -> None:
    fallback = make(cache_cells_max=2)
    fallback.complete(geocoder.reverse_batch([0.0] * 4, [-30.0, -31.0, -32.0, -33.0]))
    assert len(fallback._answers) == 2


def test_a_service_that_fails_is_left_alone(
    service: Service,
    make: Callable[..., Fallback],
    geocoder: Geocoder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    service.status = 500
    fallback = make(failures_max=2)
    for lon in (-30.25, -31.25, -32.25, -33.25):
        result = geocoder.reverse(0.0, lon)
        assert fallback.complete([result]) == [result]
    assert len(service.requests) == 2
    assert "is left alone" in caplog.text
    assert ".25" not in caplog.text


def test_the_circuit_opens_longer_each_time_and_closes_on_success() -> None:
    breaker = CircuitBreaker(FallbackSettings(failures_max=2, pause_s=10, pause_s_max=30))
    assert breaker.failed(0) is None
    assert breaker.failed(1) == 10
    assert not breaker.allows(10.9)
    assert breaker.allows(11)
    assert breaker.failed(11) == 20
    assert breaker.failed(31) == 30
    assert breaker.failed(61) == 30
    breaker.succeeded()
    assert breaker.failed(100) is None
    assert breaker.failed(101) == 10


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def test_it_is_off_unless_asked_for() -> None:
    assert from_arguments(arguments(), wait_s=0) is None


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--fallback", "nowhere"), "nowhere"),
        (("--fallback", "nominatim", "--fallback-options", "[1]"), "must be a JSON object"),
        (("--fallback", "nominatim", "--fallback-options", "{"), "must be a JSON object"),
        (("--fallback", "nominatim", "--fallback-options", '{"colour": 1}'), "colour"),
        (("--fallback", "nominatim", "--fallback-rate", "0"), "greater than 0"),
    ],
)
def test_wrong_settings_are_refused_with_the_reason(words: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        from_arguments(arguments(*words), wait_s=0)


def test_a_key_is_not_repeated_in_a_message() -> None:
    options = '{"api_key": "s3cret", "colour": 1}'
    words = ("--fallback", "nominatim", "--fallback-options", options)
    with pytest.raises(ConfigError) as caught:
        from_arguments(arguments(*words), wait_s=0)
    assert "s3cret" not in str(caught.value)


def test_a_configured_service_is_asked(service: Service, geocoder: Geocoder) -> None:
    options = json.dumps({"domain": service.domain, "scheme": "http"})
    fallback = from_arguments(
        arguments("--fallback", "nominatim", "--fallback-options", options), wait_s=60.0
    )
    assert fallback is not None
    try:
        assert fallback.complete([geocoder.reverse(0.0, -30.0)])[0].found
    finally:
        fallback.close()


def test_a_requesting_thread_takes_its_process_with_it(world_path: Path) -> None:
    assert_process_ends(
        f"""
        from pathlib import Path
        from unittest.mock import Mock
        from geoservice.fallback.fallback import Fallback
        from geoservice.reverse.geocoder import Geocoder
        fallback = Fallback("external", Mock(reverse=die))
        fallback.complete([Geocoder.open(Path("{world_path}")).reverse(0, -30)])
        """,
        "fallback-external",
    )
