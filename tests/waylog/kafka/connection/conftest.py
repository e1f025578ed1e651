"""Connections on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import uvloop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run each test on asyncio's event loop (console, consumers) and on uvloop (gateway)."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
