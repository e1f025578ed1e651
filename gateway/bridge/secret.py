"""The secret of a bridge's fix keys: without it nobody can construct collisions."""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import suppress
from pathlib import Path

from gateway.fixes.known_fixes import use_secret
from gateway.fixes.siphash import KEY_BYTES
from waylog.folders import sync_folder

logger = logging.getLogger(__name__)


def use_secret_of(folder: Path) -> None:
    """Use the secret in a folder, and create it if there is none.

    If the folder cannot be written, the process goes on with a random secret of its own, and so
    without the keys that were kept.
    """
    path = folder / "secret"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        secret = _read(path) or _make(path)
    except OSError as error:
        logger.warning("%s cannot be kept: %s", path, error.strerror)
        return
    use_secret(secret)


def _read(path: Path) -> bytes | None:
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(found) == KEY_BYTES:
        return found
    logger.warning("%s is damaged; the ids of fixes are read from the log again", path)
    path.unlink()
    return None


def _make(path: Path) -> bytes:
    secret = secrets.token_bytes(KEY_BYTES)
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        # Another bridge of the same folder may have been faster: both then use its secret.
        with suppress(FileExistsError):
            os.link(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)
    return path.read_bytes()
