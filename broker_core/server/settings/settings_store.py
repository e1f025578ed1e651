"""Durable storage of what clients change on a standalone broker: ACLs, users, quotas, settings.

It is one file beside the topics, replaced durably before a change is answered. It contains no
passwords, but SCRAM credentials derived from them: only its owner may read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from broker_core import errors
from broker_core.environment import Environment
from waylog.config import ConfigError

_FILE: Final = "settings.json"
_FORMAT_VERSION: Final = 1


class SettingsStore:
    """The settings file; each of its parts belongs to one object."""

    def __init__(self, directory: Path, environment: Environment) -> None:
        self._path = directory / _FILE
        self._disk = environment.disk
        self._parts: dict[str, Callable[[], Any]] = {}
        self._stored: dict[str, Any] = {}
        if self._disk.size(self._path) is not None:
            try:
                self._stored = json.loads(self._disk.read(self._path))
            except ValueError as error:
                # Without its ACLs a broker might admit everybody, so it must not start.
                raise ConfigError(f"{self._path}: cannot be read: {error}") from None

    def attach(self, name: str, load: Callable[[Any], None], to_stored: Callable[[], Any]) -> None:
        """Call `load` with the stored part, if any; `save` stores what `to_stored` returns."""
        if name in self._stored:
            load(self._stored[name])
        self._parts[name] = to_stored

    def save(self) -> None:
        """Store all parts durably; raises KafkaStorageError."""
        parts = {name: to_stored() for name, to_stored in self._parts.items()}
        # Keep parts that a newer version of the broker has stored.
        self._stored = self._stored | {"version": _FORMAT_VERSION} | parts
        try:
            self._disk.replace(self._path, json.dumps(self._stored, indent=1).encode())
        except OSError as error:
            raise errors.KafkaStorageError(f"{_FILE}: {error.strerror}") from error
