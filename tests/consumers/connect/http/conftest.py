"""A server, and tasks that send to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.consumers.connect.http.http_server import HttpServer
from tests.consumers.connect.http.running_sink import MakeSink, Sink
from tests.consumers.connect.sink_harness import Reporter


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
