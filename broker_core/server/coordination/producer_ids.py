"""Ids of idempotent producers: never given twice, whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from broker_core import errors
from broker_core.environment import Environment
from waylog.config import ConfigError

_FILE: Final = "producer_ids"
#: Ids are reserved on disk in blocks of this size, as by Kafka's controller; an unused rest is
#: lost at a restart, of 2^63.
_BLOCK: Final = 1000


class ProducerIdSource(Protocol):
    """Where new ids come from."""

    def next_id(self) -> int:
        """A new id; raises BrokerError."""


class ProducerIds:
    """Counts upwards; what is on disk is always ahead of what has been given."""

    def __init__(self, directory: Path, environment: Environment) -> None:
        """Raises ConfigError where the count is lost."""
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
        """A new id; raises KafkaStorageError."""
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
