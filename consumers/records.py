"""Records as the logic of consumers sees them: what it is given, and what it wants written."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class InputRecord(Protocol):
    """A record of the log; confluent_kafka.Message is one."""

    def topic(self) -> str | None:
        """The topic it was read from."""

    def partition(self) -> int | None:
        """The partition it was read from."""

    def offset(self) -> int | None:
        """Its place in the partition."""

    def key(self) -> bytes | None:
        """Its key, None where it has none."""

    def value(self) -> bytes | None:
        """Its value, None for a tombstone."""

    def headers(self) -> Any:
        """Its headers: pairs of name and bytes; None where it has none."""


class OutputRecord(NamedTuple):
    """A record to be written."""

    topic: str
    partition: int | None  # None: by its key
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]] | None = None
