"""The topics as groups see them, and which of them a regular expression of a member means."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Protocol

import re2

from broker_core.errors import InvalidRegularExpression

_QUIET = re2.Options()
_QUIET.log_errors = False


class TopicView(Protocol):
    """What there is to subscribe to."""

    @property
    def version(self) -> int:
        """Another number after every change."""

    def names(self) -> Iterable[str]:
        """All topics but the broker's own."""

    def find(self, name: str) -> tuple[bytes, int] | None:
        """A topic's id and its number of partitions."""

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic."""


@lru_cache(64)
def compile_regex(pattern: str) -> Any:
    """A regular expression of RE2, which takes linear time; raises InvalidRegularExpression."""
    try:
        return re2.compile(pattern, options=_QUIET)
    except re2.error as error:
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}"
        ) from None
