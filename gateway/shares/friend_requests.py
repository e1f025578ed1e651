"""Users who ask to be shown the devices of others, and users who are blocked; in the user database.

Showing somebody one's devices answers the request, and ends a block. Who is blocked is not told so:
what they ask looks to them as if nobody had answered it yet.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from dataclasses import dataclass
from typing import Final

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS friend_requests (
    user TEXT NOT NULL REFERENCES users (name),
    asker TEXT NOT NULL REFERENCES users (name),
    created INTEGER NOT NULL,
    declined INTEGER,
    taken_back INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (user, asker)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS friend_requests_of_asker ON friend_requests (asker);
CREATE TABLE IF NOT EXISTS friend_blocks (
    user TEXT NOT NULL REFERENCES users (name),
    blocked TEXT NOT NULL REFERENCES users (name),
    PRIMARY KEY (user, blocked)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS friend_blocks_of_blocked ON friend_blocks (blocked);
"""

_DAY_MS: Final = 86_400_000
#: How long a request is open, and how long after a refusal nobody may ask again.
OPEN_MS: Final = 30 * _DAY_MS
DECLINED_MS: Final = 7 * _DAY_MS
#: Open requests of one user, and to one user; those of blocked users are not counted there.
SENT_MAX: Final = 20
RECEIVED_MAX: Final = 100
#: Users whom one user may block.
BLOCKED_MAX: Final = 1_000

_OPEN: Final = "r.declined IS NULL AND NOT r.taken_back AND r.created > :now - :open_ms"


def not_blocked(user: str, other: str) -> str:
    """Return SQL: the user in one column has not blocked the one in the other column."""
    condition = f"b.user = {user} AND b.blocked = {other}"
    return f"NOT EXISTS (SELECT 1 FROM friend_blocks b WHERE {condition})"  # noqa: S608


_HEARD: Final = not_blocked("r.user", "r.asker")


class TooManyRequests(Exception):
    """There are as many open requests, or blocks, as there may be; text and `code` say whose."""

    def __init__(self, reason: str, code: str) -> None:
        super().__init__(reason)
        self.code = code


class Declined(Exception):
    """The user has declined lately; `until` (ms) is when one may ask again."""

    def __init__(self, until: int) -> None:
        super().__init__("the user has declined")
        self.until = until


@dataclass(frozen=True)
class FriendRequest:
    """An open request, with the other user: the one who asks, or the one who is asked."""

    user: str
    created: int  # ms

    @property
    def until(self) -> int:
        """Return when it expires (ms)."""
        return self.created + OPEN_MS


class FriendRequests:
    """Reads and changes requests and blocks; `lock` guards the connection of a UserStore."""

    def __init__(self, connection: sqlite3.Connection, lock: threading.Lock) -> None:
        self._connection = connection
        self._lock = lock

    def ask(self, user: str, asker: str, now: int | None = None) -> bool:
        """Ask `user` on behalf of `asker`; return whether that is news to `user`.

        A request that is open already stays as it is; one that was taken back is open again, and as
        old as it was: nobody is told of it twice. Raises TooManyRequests, Declined, and
        sqlite3.IntegrityError for unknown users.
        """
        now = _now_ms() if now is None else now
        names: dict[str, str | int]
        names = {"user": user, "asker": asker, "now": now, "open_ms": OPEN_MS}
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(
                "DELETE FROM friend_requests WHERE created <= :now - :open_ms "
                "AND (declined IS NULL OR declined <= :now - :declined_ms)",
                names | {"declined_ms": DECLINED_MS},
            )
            row = self._connection.execute(
                "SELECT declined, taken_back FROM friend_requests "
                "WHERE user = :user AND asker = :asker",
                names,
            ).fetchone()
            is_new = row is None
            if row is not None:
                declined, taken_back = row
                is_new = declined is not None
                if not is_new and not taken_back:
                    return False
                if is_new and declined > now - DECLINED_MS:
                    raise Declined(declined + DECLINED_MS)
            if self._count("r.asker = :asker", names) >= SENT_MAX:
                reason = f"you have {SENT_MAX} open requests: take some back"
                raise TooManyRequests(reason, "too_many_sent")
            if self._count(f"r.user = :user AND {_HEARD}", names) >= RECEIVED_MAX:
                reason = "too many users ask this one at the moment"
                raise TooManyRequests(reason, "too_many_received")
            self._connection.execute(
                "INSERT INTO friend_requests (user, asker, created) VALUES (:user, :asker, :now) "
                "ON CONFLICT (user, asker) DO UPDATE SET taken_back = 0, declined = NULL, "
                "created = CASE WHEN declined IS NULL THEN created ELSE :now END",
                names,
            )
            blocked = self._connection.execute(
                "SELECT 1 FROM friend_blocks WHERE user = :user AND blocked = :asker", names
            ).fetchone()
            return blocked is None and is_new

    def _count(self, condition: str, names: dict[str, str | int]) -> int:
        return int(
            self._connection.execute(
                f"SELECT COUNT(*) FROM friend_requests r WHERE {_OPEN} AND {condition}",  # noqa: S608
                names,
            ).fetchone()[0]
        )

    def received(self, user: str) -> list[FriendRequest]:
        """Return who asks to be shown the devices of a user, the newest request first."""
        return self._found("asker", f"r.user = :name AND {_HEARD}", user)

    def sent(self, asker: str) -> list[FriendRequest]:
        """Return the open requests of a user, the newest first."""
        return self._found("user", "r.asker = :name", asker)

    def _found(self, other: str, condition: str, name: str) -> list[FriendRequest]:
        with self._lock:
            rows = self._connection.execute(
                f"SELECT r.{other}, r.created FROM friend_requests r "  # noqa: S608
                f"WHERE {_OPEN} AND {condition} ORDER BY r.created DESC, r.{other}",
                {"name": name, "now": _now_ms(), "open_ms": OPEN_MS},
            ).fetchall()
        return [FriendRequest(*row) for row in rows]

    def take_back(self, user: str, asker: str) -> None:
        """End an open request of `asker`; one that was declined stays declined."""
        with self._lock:
            self._connection.execute(
                "UPDATE friend_requests SET taken_back = 1 "
                "WHERE user = ? AND asker = ? AND declined IS NULL",
                (user, asker),
            )

    def decline(self, user: str, asker: str) -> None:
        """Decline what `asker` asks of `user`, if the request is open."""
        with self._lock:
            self._connection.execute(
                "UPDATE friend_requests AS r SET declined = :now "  # noqa: S608
                f"WHERE r.user = :user AND r.asker = :asker AND {_OPEN} AND {_HEARD}",
                {"user": user, "asker": asker, "now": _now_ms(), "open_ms": OPEN_MS},
            )

    def blocked(self, user: str) -> list[str]:
        """Return the users whom a user does not hear, by name."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT blocked FROM friend_blocks WHERE user = ? ORDER BY blocked", (user,)
            ).fetchall()
        return [name for (name,) in rows]

    def block(self, user: str, blocked: str) -> None:
        """Hear no requests of a user any more, nor show it one's devices.

        Raises TooManyRequests, and sqlite3.IntegrityError for unknown users.
        """
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            (count,) = self._connection.execute(
                "SELECT COUNT(*) FROM friend_blocks WHERE user = ? AND blocked != ?",
                (user, blocked),
            ).fetchone()
            if count >= BLOCKED_MAX:
                reason = f"you have blocked {BLOCKED_MAX} users"
                raise TooManyRequests(reason, "too_many_blocked")
            self._connection.execute(
                "INSERT INTO friend_blocks (user, blocked) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (user, blocked),
            )
            self._connection.execute(
                "DELETE FROM friendships WHERE user = ? AND friend = ?", (user, blocked)
            )

    def unblock(self, user: str, blocked: str) -> None:
        """Hear a user again."""
        with self._lock:
            self._connection.execute(
                "DELETE FROM friend_blocks WHERE user = ? AND blocked = ?", (user, blocked)
            )

    def forget(self, user: str) -> None:
        """Delete everything that is stored here about a user."""
        with self._lock:
            self._connection.execute(
                "DELETE FROM friend_requests WHERE user = :user OR asker = :user", {"user": user}
            )
            self._connection.execute(
                "DELETE FROM friend_blocks WHERE user = :user OR blocked = :user", {"user": user}
            )


def answer(connection: sqlite3.Connection, user: str, friend: str) -> None:
    """Note that `user` shows `friend` the devices; within a transaction that says so."""
    connection.execute("DELETE FROM friend_requests WHERE user = ? AND asker = ?", (user, friend))
    connection.execute("DELETE FROM friend_blocks WHERE user = ? AND blocked = ?", (user, friend))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
