"""What a request that waits for its appends leaves behind if these fail."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from gateway.http.ingest.ingest import all_appended
from waylog.kafka.clients import AppendError


class Body(bytearray):
    """A request's body, which the test can watch."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Keep the garbage collector from running."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_body_is_given_back_when_its_appends_have_failed(
    no_collector: None, is_late: bool
) -> None:
    loop = asyncio.get_running_loop()
    bodies: list[weakref.ref[Body]] = []

    async def serve() -> None:
        body = Body(b"a large request")
        bodies.append(weakref.ref(body))
        futures = [loop.create_future()]
        if not is_late:
            loop.call_soon(futures[0].set_exception, AppendError("no broker"))
        await all_appended(futures, 0.0 if is_late else 60.0)

    try:
        await serve()
    except (AppendError, TimeoutError) as error:
        assert isinstance(error, TimeoutError if is_late else AppendError)
    assert bodies[0]() is None
