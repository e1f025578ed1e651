"""The clock of the map by area: runs its ticks, in turns of the event loop that stay short."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

from gateway.viewers.areas import TICK_S, AreaViews
from waylog.observability.telemetry import now_ms
from waylog.process.background import PeriodicTask

#: Seconds of work after which others have their turn.
_TURN_S: Final = 0.001


def show_areas(areas: AreaViews) -> asyncio.Task[None]:
    """Start the ticks; the caller keeps the task, and cancels it."""

    async def tick() -> None:
        began = perf_counter()
        for _ in areas.steps(now_ms()):
            if perf_counter() - began > _TURN_S:
                await asyncio.sleep(0)
                began = perf_counter()

    return PeriodicTask("showing the map by area").spawn(TICK_S, tick)
