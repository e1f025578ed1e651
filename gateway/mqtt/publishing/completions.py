"""Completions of appends: whether the log has stored something, and several of them as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.mqtt.interfaces import Completion


def has_failed(completion: Completion) -> bool:
    """Tell whether what is done has not been stored."""
    return completion.cancelled() or completion.exception() is not None


class AllOf:
    """Several completions as one, which fails as soon as one of them fails."""

    def __init__(self, completions: Sequence[Completion]) -> None:
        self._completions = completions

    def add_done_callback(self, callback: Callable[[Completion], object]) -> None:
        """Call `callback` once: with the first completion that fails, or with the last."""
        missing = len(self._completions)

        def done(completion: Completion) -> None:
            nonlocal missing
            if missing <= 0:
                return
            missing = 0 if has_failed(completion) else missing - 1
            if not missing:
                callback(completion)

        for each in self._completions:
            each.add_done_callback(done)
