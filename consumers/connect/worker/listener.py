"""Tells the herder on the event loop what the threads of connectors and tasks report."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from consumers.connect.herder.herder import Herder
from consumers.connect.storage.states import State, TaskId


class HerderListener:
    """Is told about connectors and tasks, in any thread (`WorkerListener`)."""

    def __init__(
        self,
        herder: Callable[[], Herder],
        loop: asyncio.AbstractEventLoop,
        divide: Callable[[str], object],
        *,
        tracks_topics: bool,
    ) -> None:
        """`divide` has a connector's work divided anew."""
        self._herder: Final = herder
        self._loop: Final = loop
        self._divide: Final = divide
        self._tracks_topics: Final = tracks_topics

    def task_is(self, task: TaskId, state: State, trace: str = "") -> None:
        """See TaskListener."""
        self._call(lambda: self._herder().task_is(task, state, trace))

    def topic_is_used(self, connector: str, topic: str) -> None:
        """See TaskListener."""
        if self._tracks_topics:
            self._call(lambda: self._herder().topic_is_used(connector, topic))

    def connector_is(self, connector: str, state: State, trace: str = "") -> None:
        """See ConnectorListener."""
        self._call(lambda: self._herder().connector_is(connector, state, trace))

    def work_has_changed(self, connector: str) -> None:
        """See ConnectorListener."""
        self._call(lambda: self._divide(connector))

    def _call(self, function: Callable[[], Any]) -> None:
        # A thread that is left alone may outlast the event loop.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)
