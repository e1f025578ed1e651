"""Waits for what may hang, and looks meanwhile whether that is still worth it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from waylog.process.threads import start_thread

T = TypeVar("T")


def watched(name: str, work: Callable[[], T], look: Callable[[], object], every_s: float) -> T:
    """Return what `work` returns in a thread of this name, or raise what it raises.

    `look` is called before, and then every `every_s` seconds; what it raises ends the wait, and
    leaves the thread to itself.
    """
    ended: Future[T] = Future()

    def run() -> None:
        try:
            ended.set_result(work())
        except BaseException as error:  # nobody else would hear of it
            ended.set_exception(error)

    look()
    start_thread(run, name, may_end=lambda: True)
    while not wait([ended], every_s).done:
        look()
    return ended.result()
