"""The topics as groups see them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, Protocol


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
