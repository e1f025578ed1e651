"""Runs tests on asyncio's event loop and on uvloop."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop


def on_both_event_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test on each loop; its fixtures must not be asynchronous."""

    @functools.wraps(test)
    def run(event_loop: Callable[[], asyncio.AbstractEventLoop], **given: Any) -> None:
        with asyncio.Runner(loop_factory=event_loop) as runner:
            runner.run(test(**given))

    signature = inspect.signature(test)
    loop = inspect.Parameter("event_loop", inspect.Parameter.KEYWORD_ONLY)
    parameters = [*signature.parameters.values(), loop]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    mark = pytest.mark.parametrize("event_loop", list(loops.values()), ids=list(loops))
    marked: Callable[..., None] = mark(run)
    return marked
