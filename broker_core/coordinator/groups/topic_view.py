"""The topics as groups see them, and matching of topics by regular expressions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import re2

from broker_core.errors import InvalidRegularExpression

_QUIET = re2.Options()
_QUIET.log_errors = False


class TopicView(Protocol):
    """The topics that can be subscribed to."""

    @property
    def version(self) -> int:
        """A number that is different after every change."""

    def names(self) -> Iterable[str]:
        """Return all topics except the broker's internal ones."""

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return a topic's id and its number of partitions."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic."""


class TopicRights(NamedTuple):
    """The topics that a client may describe."""

    allows: Callable[[str], bool]
    #: Clients with the same key have the same rights.
    key: Hashable
    #: A number that is different after every change of anybody's rights.
    version: int


#: The rights of every client where no rights are checked.
ALL_TOPICS = TopicRights(lambda _: True, None, 0)


@lru_cache(64)
def compile_regex(pattern: str) -> Any:
    """Compile with RE2, which matches in linear time; raises InvalidRegularExpression."""
    try:
        return re2.compile(pattern, options=_QUIET)
    except re2.error as error:
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}"
        ) from None
