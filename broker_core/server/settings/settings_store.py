"""`settings.json`: users that are stored while a broker is stopped, for its next start.

It contains no passwords, but SCRAM credentials derived from them: only its owner may read it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from broker_core import errors
from broker_core.environment import Disk, Environment
from broker_core.security.credentials import ScramUsers
from waylog.config import ConfigError

SETTINGS_FILE: Final = "settings.json"
_FORMAT_VERSION: Final = 1
_USERS: Final = "scram"


def read_settings(path: Path, disk: Disk) -> dict[str, Any]:
    """Read the file, {} if there is none; raises ConfigError if it is damaged, OSError."""
    if disk.size(path) is None:
        return {}
    try:
        stored = json.loads(disk.read(path))
        if not isinstance(stored, dict):
            raise ValueError("an object is expected")
    except ValueError as error:
        # Without its ACLs a broker might admit everybody, so it must not start.
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return stored


def load_users(directory: Path, environment: Environment) -> ScramUsers:
    """Return the stored users; raises ConfigError, OSError."""
    users = ScramUsers()
    users.load(read_settings(directory / SETTINGS_FILE, environment.disk).get(_USERS, {}))
    return users


def save_users(directory: Path, environment: Environment, users: ScramUsers) -> None:
    """Store users durably, and leave what else is in the file; raises KafkaStorageError."""
    path = directory / SETTINGS_FILE
    stored = read_settings(path, environment.disk)
    stored |= {"version": _FORMAT_VERSION, _USERS: users.to_stored()}
    try:
        environment.disk.replace(path, json.dumps(stored, indent=1).encode())
    except OSError as error:
        raise errors.KafkaStorageError(f"{SETTINGS_FILE}: {error.strerror}") from error
