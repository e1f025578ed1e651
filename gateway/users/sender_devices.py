"""The devices for which each user has sent; `devices_max` limits their number.

They are in a separate file beside the user database, shared by all gateway workers of the machine.
It holds keyed hashes instead of names, so it contains no personal data to erase. If it is lost,
devices are counted anew. A device that has sent nothing for a month no longer counts.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

_DAY_S: Final = 86_400
_KEPT_DAYS: Final = 30
#: Devices that this process does not look up again on the same day.
_REMEMBERED_MAX: Final = 50_000
#: Seconds to wait for the file. Another worker locks it for microseconds, unless it is suspended.
_BUSY_S: Final = 0.05
#: Seconds for which a user at the limit is not counted again, against invented device names.
_FULL_S: Final = 1.0
_USERS_MAX: Final = 10_000

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS sender_devices (
    user BLOB NOT NULL,
    device BLOB NOT NULL,
    day INTEGER NOT NULL,
    PRIMARY KEY (user, device)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sender_devices_by_device ON sender_devices (device);
"""


class SenderDevices:
    """The file of devices; used on one thread. `key` is a secret of the installation."""

    def __init__(
        self, path: Path | None, key: bytes, clock: Callable[[], float] = time.time
    ) -> None:
        """Open the file; replace a damaged one. Without a path devices are counted in memory."""
        self._opened: sqlite3.Connection | None = None
        self._key = key
        self._clock = clock
        # The day of the last lookup; once a day it is recorded that a device still sends.
        self._remembered: OrderedDict[tuple[bytes, bytes], int] = OrderedDict()
        # For a user at the limit: until when it is not counted again (s), and at which limit.
        self._full: OrderedDict[bytes, tuple[float, int]] = OrderedDict()
        if path is None:
            return
        try:
            self._opened = _open(path)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            logger.warning("%s is damaged (%s): devices are counted anew", path, error)
            path.unlink()
            self._opened = _open(path)
        self._connection.execute(
            "DELETE FROM sender_devices WHERE day < ?", (self._today() - _KEPT_DAYS,)
        )

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _connection(self) -> sqlite3.Connection:
        # Opened at first use: most in-memory instances are never used, and nobody closes them.
        if self._opened is None:
            self._opened = _open(None)
        return self._opened

    def knows(self, user: str, device: str) -> bool:
        """Tell whether a device has been counted today; this counts nothing.

        If the file cannot be read, every device is known.
        """
        return self._is_remembered_or(user, device, self._has_sent)

    def admits(self, user: str, device: str, devices_max: int) -> bool:
        """Tell whether a device is within a user's limit; if so, count it from now on.

        If the file cannot be written, every device is admitted.
        """
        return self._is_remembered_or(
            user, device, lambda pair, today: self._noted(pair, today, devices_max)
        )

    def forget(self, device: str) -> None:
        """Forget an erased device, which frees its place."""
        hashed = self._hash(device)
        try:
            users = self._connection.execute(
                "DELETE FROM sender_devices WHERE device = ? RETURNING user", (hashed,)
            ).fetchall()
        except sqlite3.Error as error:
            logger.error("an erased device keeps its place for a month: %s", error)
            return
        for (user,) in users:
            self._remembered.pop((user, hashed), None)

    def _is_remembered_or(
        self, user: str, device: str, ask: Callable[[tuple[bytes, bytes], int], bool]
    ) -> bool:
        """Ask the file about a device that was not counted today as far as this process knows.

        What it confirms is remembered; where it fails the answer is True.
        """
        today = self._today()
        pair = self._hash(user), self._hash(device)
        if self._remembered.get(pair) == today:
            return True
        try:
            if not ask(pair, today):
                return False
        except sqlite3.Error as error:
            logger.error("the devices of senders cannot be counted: %s", error)
            return True
        self._remembered[pair] = today
        if len(self._remembered) > _REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        return True

    def _has_sent(self, pair: tuple[bytes, bytes], today: int) -> bool:
        found = self._connection.execute(
            "SELECT 1 FROM sender_devices WHERE user = ? AND device = ? AND day >= ?",
            (*pair, today),
        ).fetchone()
        return found is not None

    def _noted(self, pair: tuple[bytes, bytes], today: int, devices_max: int) -> bool:
        execute = self._connection.execute
        found = execute(
            "SELECT day FROM sender_devices WHERE user = ? AND device = ?", pair
        ).fetchone()
        if found is not None and found[0] >= today:
            return True
        now = self._clock()
        full_until, full_at = self._full.get(pair[0], (0.0, 0))
        if found is None and now < full_until and devices_max <= full_at:
            return False
        # One statement counts and inserts, so that no other worker can come between.
        admitted = (
            execute(
                "INSERT INTO sender_devices (user, device, day) SELECT :user, :device, :today "
                "WHERE EXISTS "
                "(SELECT 1 FROM sender_devices WHERE user = :user AND device = :device) "
                "OR (SELECT count(*) FROM (SELECT 1 FROM sender_devices "
                "WHERE user = :user AND day >= :since LIMIT :bound)) < :bound "
                "ON CONFLICT (user, device) DO UPDATE SET day = excluded.day",
                {
                    "user": pair[0],
                    "device": pair[1],
                    "today": today,
                    "since": today - _KEPT_DAYS,
                    "bound": devices_max,
                },
            ).rowcount
            > 0
        )
        if not admitted:
            self._full[pair[0]] = (now + _FULL_S, devices_max)
            if len(self._full) > _USERS_MAX:
                self._full.popitem(last=False)
        return admitted

    def _hash(self, name: str) -> bytes:
        return blake2b(name.encode("utf-8", "replace"), key=self._key, digest_size=16).digest()

    def _today(self) -> int:
        return int(self._clock()) // _DAY_S


def _open(path: Path | None) -> sqlite3.Connection:
    connection = sqlite3.connect(path or ":memory:", timeout=_BUSY_S, isolation_level=None)
    try:
        # Durability is not worth waiting for the disk: rows lost in a power cut are counted anew.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(_SCHEMA)
        if path is not None:
            path.chmod(0o600)
    except BaseException:
        connection.close()
        raise
    return connection
