"""Ids of idempotent producers, of which none is given twice."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from broker_core import errors
from broker_core.environment import Environment
from waylog.config import ConfigError

_FILE: Final = "producer_ids"
#: Ids that are reserved on disk at a time, as by Kafka's controller. A restart loses the rest of a
#: block, out of 2^63 ids.
_BLOCK: Final = 1000


class ProducerIdSource(Protocol):
    """A source of new producer ids."""

    def next_id(self) -> int:
        """Return a new id; raises BrokerError."""


class ProducerIds:
    """Counts upwards; the number on disk is always ahead of the ids given."""

    def __init__(self, directory: Path, environment: Environment) -> None:
        """Read the count; raises ConfigError if the file is damaged."""
        self._path = directory / _FILE
        self._environment = environment
        self._next = 0
        if environment.disk.size(self._path) is not None:
            try:
                self._next = int(environment.disk.read(self._path))
            except ValueError:
                raise ConfigError(
                    f"{self._path}: is damaged, and no id may be given twice; write a number into "
                    "it that is larger than the id of any producer"
                ) from None
        self._reserved = self._next

    def next_id(self) -> int:
        """Return a new id; raises KafkaStorageError."""
        if self._next >= self._reserved:
            reserved = self._next + _BLOCK
            try:
                self._environment.disk.replace(self._path, str(reserved).encode())
            except OSError as error:
                raise errors.KafkaStorageError(f"{_FILE}: {error.strerror}") from error
            self._reserved = reserved
        producer_id = self._next
        self._next += 1
        return producer_id
