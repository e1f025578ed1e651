"""Requests that change topics and settings: who changes these, and the responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypedDict

from broker_core import errors
from broker_core.server.settings.admin_operations import Administration, Done

if TYPE_CHECKING:

    class _Result(TypedDict, total=False):
        error_code: int
        error_message: str | None


class Administered(Protocol):
    """The part of a broker by which topics and settings are changed."""

    @property
    def cluster(self) -> Administration:
        """Has the active controller change them, for all brokers."""


def answer_each(reply: Callable[[], None], results: Sequence[_Result]) -> Done:
    """Return a callback that answers when all changes are durable, or with an error for all."""

    def done(error: errors.BrokerError | None) -> None:
        if error is not None:
            for result in results:
                if not result["error_code"]:
                    result["error_code"] = error.code
                    result["error_message"] = str(error)
        reply()

    return done
