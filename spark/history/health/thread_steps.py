"""What the threads beside the batches of a job are doing, to notice one that hangs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

#: Seconds without a step after which a thread's work is told to the supervisor, unless its own are
#: given. A step is at most one file that is rewritten; an erasure waits ten minutes for packing.
TOLD_AFTER_S: Final = 900.0


class _Step(NamedTuple):
    since: float  # monotonic
    told_after_s: float


class ThreadSteps:
    """The step that each piece of work is in. Thread-safe."""

    def __init__(self) -> None:
        self._steps: dict[str, _Step] = {}

    @contextmanager
    def doing(self, work: str, told_after_s: float | None = None) -> Iterator[None]:
        """Watch the work of the block, which has a name of its own."""
        limit_s = TOLD_AFTER_S if told_after_s is None else told_after_s
        self._steps[work] = _Step(time.monotonic(), limit_s)
        try:
            yield
        finally:
            del self._steps[work]

    def advanced(self, work: str) -> None:
        """Note that the work has made a step."""
        step = self._steps.get(work)
        if step is not None:
            self._steps[work] = step._replace(since=time.monotonic())

    def trouble(self) -> str | None:
        """Return what has made no step for too long, None if nothing has."""
        return self._older_than(1)

    def hangs(self) -> bool:
        """Tell whether something has made no step for twice as long."""
        return self._older_than(2) is not None

    def _older_than(self, limits: int) -> str | None:
        now = time.monotonic()
        for work, step in list(self._steps.items()):
            if now - step.since > limits * step.told_after_s:
                return f"{work} has made no step for {now - step.since:.0f} s"
        return None
