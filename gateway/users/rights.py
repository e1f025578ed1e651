"""Rights of users beyond the usual ones, and the secrets that they share with the platform.

Stored in the user database. Changes are numbered (gateway.users.rights_versions), and reach open
connections within two seconds (gateway.users.permissions).
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from types import EllipsisType
from typing import Final

from gateway.formats.secretbox import key_bytes
from gateway.shares import friend_requests
from gateway.shares.share import FRIENDS, Precision, Terms, require_metres, terms_with
from gateway.users import rights_versions

logger = logging.getLogger(__name__)

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS profiles (
    user TEXT PRIMARY KEY REFERENCES users (name),
    may_send INTEGER NOT NULL DEFAULT 1,
    fixes_per_minute INTEGER,
    devices_max INTEGER,
    encryption_key TEXT
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS friendships (
    user TEXT NOT NULL REFERENCES users (name),
    friend TEXT NOT NULL REFERENCES users (name),
    since INTEGER NOT NULL DEFAULT 0,
    precision TEXT NOT NULL DEFAULT 'exact',
    metres INTEGER,
    until INTEGER,
    PRIMARY KEY (user, friend)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS friendships_of_friend ON friendships (friend);
CREATE TABLE IF NOT EXISTS topic_grants (
    user TEXT NOT NULL REFERENCES users (name),
    access TEXT NOT NULL CHECK (access IN ('publish', 'subscribe')),
    filter TEXT NOT NULL,
    PRIMARY KEY (user, access, filter)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cards (
    device TEXT PRIMARY KEY,
    name TEXT,
    face TEXT
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS push_subscriptions (
    endpoint TEXT PRIMARY KEY,
    user TEXT NOT NULL REFERENCES users (name),
    p256dh TEXT NOT NULL,
    auth TEXT NOT NULL,
    created INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS push_subscriptions_of_user ON push_subscriptions (user);
CREATE TABLE IF NOT EXISTS secrets (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
"""

#: Columns of `friendships` that databases of earlier versions do not have, and their index.
_LATER_COLUMNS: Final = {
    "precision": "TEXT NOT NULL DEFAULT 'exact'",
    "metres": "INTEGER",
    "until": "INTEGER",
}
_LATER_INDEX: Final = """
CREATE INDEX IF NOT EXISTS friendships_until ON friendships (until) WHERE until IS NOT NULL;
"""

_GRANTS_MAX: Final = 100
_NAMES_A_QUESTION: Final = 200
_NEVER: Final = 2**62
#: Characters of base64; a picture of 192 x 192 pixels takes less than half of it.
FACE_CHARACTERS_MAX: Final = 128 * 1024


class AlreadyOver(ValueError):
    """A friendship is to end at a time that has passed."""


@dataclass(frozen=True)
class Showing:
    """What a user shows a friend: from when on, how precisely, and until when (ms)."""

    since: int
    precision: Precision = "exact"
    metres: int | None = None  # of precision `metres`
    until: int | None = None  # None: until somebody ends it

    @property
    def terms(self) -> Terms:
        """Return how positions are told to the friend."""
        return FRIENDS if self.precision == "exact" else terms_with(self.precision, self.metres)

    def is_over(self, now: int) -> bool:
        """Tell whether it has ended by itself."""
        return self.until is not None and self.until <= now


@dataclass(frozen=True)
class Rights:
    """The rights of one user."""

    may_send: bool = True  # False: the user may only read
    fixes_per_minute: int | None = None  # over all its devices and all workers of the machine
    devices_max: int | None = None  # different devices it may send for
    #: Passphrase or hexadecimal key, see gateway.formats.secretbox.
    encryption_key: str | None = field(default=None, repr=False)
    #: Users whose devices this one may see, with the start of each friendship (ms).
    friends: Mapping[str, int] = field(default_factory=dict, hash=False)
    publish: tuple[str, ...] = ()  # MQTT topic filters beyond the user's own topics
    subscribe: tuple[str, ...] = ()
    #: The terms of those friends who show no exact positions.
    coarse: Mapping[str, Terms] = field(default_factory=dict, hash=False)
    #: When friendships end by themselves (ms), of those that do.
    ends: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def sight(self) -> str:
        """Return a text that is another one once the user sees more or less of friends."""
        seen = [
            (owner, since, self.terms_for(owner).cell_m) for owner, since in self.friends.items()
        ]
        return hashlib.blake2b(repr(sorted(seen)).encode(), digest_size=12).hexdigest()

    def narrows(self, before: Rights) -> bool:
        """Tell whether something of friends is not to be seen any more that was before.

        Who is shown more precisely from now on has not been shown too much until now.
        """
        for owner, since in before.friends.items():
            terms, other = before.terms_for(owner), self.terms_for(owner)
            if owner not in self.friends or terms.tells_more_than(other):
                return True
            if self.friends[owner] > since and not other.tells_more_than(terms):
                return True
        return False

    def sees(self, owner: str) -> bool:
        """Tell whether the user may see something of a friend's devices now."""
        if owner not in self.friends:
            return False
        # The database tells of the end a moment later.
        return not self.ends or self.ends.get(owner, _NEVER) > _now_ms()

    def terms_for(self, owner: str) -> Terms:
        """Return how positions of a friend are told to the user."""
        return self.coarse.get(owner, FRIENDS)


#: The rights of a user without special settings.
USUAL_RIGHTS: Final = Rights()


class RightsTable:
    """Reads and changes rights; `lock` guards the connection of a UserStore."""

    def __init__(self, connection: sqlite3.Connection, lock: threading.Lock) -> None:
        self._connection = connection
        self._lock = lock
        connection.executescript(SCHEMA)
        with lock, connection:
            connection.execute("BEGIN IMMEDIATE")
            _date_friendships(connection)
            _add_columns(connection)
        connection.executescript(_LATER_INDEX + rights_versions.SCHEMA)

    def of(self, user: str) -> Rights:
        """Return the rights of a user; USUAL_RIGHTS if it has no settings or does not exist."""
        with self._lock:
            row = self._connection.execute(
                "SELECT may_send, fixes_per_minute, devices_max, encryption_key "
                "FROM profiles WHERE user = ?",
                (user,),
            ).fetchone()
            friends = self._connection.execute(
                "SELECT f.user, f.since, f.precision, f.metres, f.until "  # noqa: S608
                "FROM friendships f JOIN users u ON u.name = f.user "
                "WHERE f.friend = ? AND u.revoked IS NULL AND (f.until IS NULL OR f.until > ?) "
                f"AND {friend_requests.not_blocked('f.friend', 'f.user')}",
                (user, _now_ms()),
            ).fetchall()
            grants = self._connection.execute(
                "SELECT access, filter FROM topic_grants WHERE user = ? ORDER BY filter", (user,)
            ).fetchall()
        if row is None and not friends and not grants:
            return USUAL_RIGHTS
        may_send, fixes_per_minute, devices_max, key = row or (1, None, None, None)
        seen = {owner: Showing(*columns) for owner, *columns in friends}
        return Rights(
            bool(may_send),
            fixes_per_minute,
            devices_max,
            key,
            {owner: each.since for owner, each in seen.items()},
            tuple(text for access, text in grants if access == "publish"),
            tuple(text for access, text in grants if access == "subscribe"),
            {owner: each.terms for owner, each in seen.items() if not each.terms.is_exact},
            {owner: each.until for owner, each in seen.items() if each.until is not None},
        )

    def set_sending(self, user: str, allowed: bool) -> None:
        """Set whether a user may send. Raises sqlite3.IntegrityError for an unknown user."""
        self._set(user, "may_send", int(allowed))

    def set_quota(self, user: str, fixes_per_minute: int | None, devices_max: int | None) -> None:
        """Limit what a user may send; None is unlimited. Raises ValueError."""
        for bound in (fixes_per_minute, devices_max):
            if bound is not None and not 0 < bound < 2**31:
                raise ValueError("a quota is a number from 1 on")
        self._set(user, "fixes_per_minute", fixes_per_minute)
        self._set(user, "devices_max", devices_max)

    def set_encryption_key(self, user: str, key: str | None) -> None:
        """Set the key of a user's encrypted payloads; None removes it. Raises ValueError."""
        if key is not None:
            key_bytes(key)
        self._set(user, "encryption_key", key)

    def befriend(
        self,
        user: str,
        friend: str,
        since: int | None = None,
        *,
        precision: Precision | None = None,
        metres: int | None = None,
        until: int | EllipsisType | None = ...,
    ) -> None:
        """Let `friend` see the devices of `user`, with what is recorded from `since` (ms) on.

        The default is now; an existing friendship then keeps its start, unless it is to tell more
        precisely than before: what has passed was not meant to be told so. What else is not given
        stays as it is; at first positions are exact, and nothing ends by itself. A request of the
        friend is answered by it, and a block ends. Raises ValueError: AlreadyOver if
        `until` (ms) has passed.
        """
        if user == friend:
            raise ValueError("everybody sees their own devices")
        if precision is not None:
            require_metres(precision, metres)
        now = _now_ms()
        if isinstance(until, int) and until <= now:
            raise AlreadyOver("until must be a time that is to come")
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            row = self._connection.execute(
                "SELECT since, precision, metres, until FROM friendships "
                "WHERE user = ? AND friend = ?",
                (user, friend),
            ).fetchone()
            known = None if row is None else Showing(*row)
            if known is not None and known.is_over(now):
                known = None
            showing = known or Showing(now)
            if precision is not None:
                showing = replace(showing, precision=precision, metres=metres)
            if not isinstance(until, EllipsisType):
                showing = replace(showing, until=until)
            if known is not None and showing.terms.tells_more_than(known.terms):
                showing = replace(showing, since=now)
            if since is not None:
                showing = replace(showing, since=since)
            friend_requests.answer(self._connection, user, friend)
            if showing == known:
                return
            self._connection.execute(
                "INSERT INTO friendships (user, friend, since, precision, metres, until) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (user, friend) DO UPDATE SET "
                "since = excluded.since, precision = excluded.precision, "
                "metres = excluded.metres, until = excluded.until",
                (user, friend, *(getattr(showing, each.name) for each in fields(Showing))),
            )

    def end_friendships(self) -> None:
        """Delete the friendships that have ended by themselves."""
        now = _now_ms()
        with self._lock:
            over = self._connection.execute(
                "SELECT 1 FROM friendships WHERE until IS NOT NULL AND until <= ? LIMIT 1", (now,)
            ).fetchone()
            if over is not None:
                self._connection.execute(
                    "DELETE FROM friendships WHERE until IS NOT NULL AND until <= ?", (now,)
                )

    def unfriend(self, user: str, friend: str) -> None:
        """Let `friend` no longer see the devices of `user`."""
        self._write("DELETE FROM friendships WHERE user = ? AND friend = ?", user, friend)

    def friends_of(self, user: str) -> list[str]:
        """Return the users who may see the devices of `user`."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT friend FROM friendships "
                "WHERE user = ? AND (until IS NULL OR until > ?) ORDER BY friend",
                (user, _now_ms()),
            ).fetchall()
        return [name for (name,) in rows]

    def friendships(self, of: Collection[str] | None = None) -> dict[tuple[str, str], Showing]:
        """Return what users show their friends, by user and friend.

        `of` are the users about whom it is asked, as user or friend; None: all. Revoked users have
        no friends.
        """
        found: dict[tuple[str, str], Showing] = {}
        now = _now_ms()
        names = [None] if of is None else list(of)
        for begin in range(0, len(names), _NAMES_A_QUESTION):
            some = names[begin : begin + _NAMES_A_QUESTION]
            marks = ", ".join("?" * len(some))
            where = "1" if of is None else f"(f.user IN ({marks}) OR f.friend IN ({marks}))"
            with self._lock:
                rows = self._connection.execute(
                    "SELECT f.user, f.friend, f.since, f.precision, f.metres, f.until "  # noqa: S608
                    "FROM friendships f "
                    "JOIN users u ON u.name = f.user JOIN users v ON v.name = f.friend "
                    "WHERE u.revoked IS NULL AND v.revoked IS NULL "
                    f"AND (f.until IS NULL OR f.until > ?) AND {where}",
                    (now,) if of is None else (now, *some, *some),
                ).fetchall()
            found |= {
                (user, friend): Showing(max(0, since), *columns)
                for user, friend, since, *columns in rows
            }
        return found

    def grant(self, user: str, access: str, topic_filter: str) -> None:
        """Let a user publish or subscribe to MQTT topics of others. Raises ValueError."""
        if not 0 < len(topic_filter) <= 1024 or "\0" in topic_filter:
            raise ValueError("a topic filter has 1 to 1024 characters")
        rights = self.of(user)
        if len(rights.publish) + len(rights.subscribe) >= _GRANTS_MAX:
            raise ValueError(f"a user has at most {_GRANTS_MAX} grants")
        self._write(
            "INSERT OR IGNORE INTO topic_grants (user, access, filter) VALUES (?, ?, ?)",
            *(user, access, topic_filter),
        )

    def withdraw(self, user: str, access: str, topic_filter: str) -> None:
        """Undo `grant`."""
        self._write(
            "DELETE FROM topic_grants WHERE user = ? AND access = ? AND filter = ?",
            *(user, access, topic_filter),
        )

    def set_card(self, device: str, name: str | None, face: str | None) -> None:
        """Store the name and the picture of a device (`user/device`): base64 of a PNG or JPEG.

        Raises ValueError for a picture that is too large.
        """
        if face is not None and len(face) > FACE_CHARACTERS_MAX:
            raise ValueError(f"a face has at most {FACE_CHARACTERS_MAX * 3 // 4 // 1024} KB")
        self._write(
            "INSERT OR REPLACE INTO cards (device, name, face) VALUES (?, ?, ?)",
            *(device, name, face),
        )

    def card(self, device: str) -> dict[str, str] | None:
        """Return the name and picture of a device that are set; None if it has no card."""
        with self._lock:
            row = self._connection.execute(
                "SELECT name, face FROM cards WHERE device = ?", (device,)
            ).fetchone()
        if row is None:
            return None
        return {key: value for key, value in zip(("name", "face"), row, strict=True) if value}

    def add_push_subscription(
        self, user: str, endpoint: str, p256dh: str, auth: str, subscriptions_max: int
    ) -> None:
        """Store a browser's push subscription; the user's oldest beyond the limit are deleted."""
        now = time.time_ns()
        self._write(
            "INSERT OR REPLACE INTO push_subscriptions (endpoint, user, p256dh, auth, created) "
            "VALUES (?, ?, ?, ?, ?)",
            *(endpoint, user, p256dh, auth, now),
        )
        self._write(
            "DELETE FROM push_subscriptions WHERE user = ? AND endpoint NOT IN "
            "(SELECT endpoint FROM push_subscriptions WHERE user = ? "
            "ORDER BY created DESC LIMIT ?)",
            *(user, user, subscriptions_max),
        )

    def push_subscriptions(self, user: str) -> list[tuple[str, str, str]]:
        """Return endpoint and keys of each of a user's browsers."""
        with self._lock:
            return self._connection.execute(
                "SELECT endpoint, p256dh, auth FROM push_subscriptions WHERE user = ?", (user,)
            ).fetchall()

    def remove_push_subscription(self, endpoint: str, user: str | None = None) -> None:
        """Delete a subscription; with `user`, only if it belongs to that user."""
        self._write(
            "DELETE FROM push_subscriptions WHERE endpoint = ? AND user = ifnull(?, user)",
            *(endpoint, user),
        )

    def secret(self, name: str, length: int = 32) -> bytes:
        """Return a secret of the installation, made at first use and shared by all workers."""
        with self._lock:
            row = self._connection.execute(
                "SELECT value FROM secrets WHERE name = ?", (name,)
            ).fetchone()
            if row is None:
                self._connection.execute(
                    "INSERT OR IGNORE INTO secrets (name, value) VALUES (?, ?)",
                    (name, secrets.token_bytes(length)),
                )
                row = self._connection.execute(
                    "SELECT value FROM secrets WHERE name = ?", (name,)
                ).fetchone()
        return bytes(row[0])

    def forget(self, user: str) -> None:
        """Delete everything that is stored here about a user."""
        for statement in (
            "DELETE FROM profiles WHERE user = :user",
            "DELETE FROM friendships WHERE user = :user OR friend = :user",
            "DELETE FROM topic_grants WHERE user = :user",
            "DELETE FROM push_subscriptions WHERE user = :user",
            "DELETE FROM cards WHERE substr(device, 1, length(:user) + 1) = :user || '/'",
        ):
            with self._lock:
                self._connection.execute(statement, {"user": user})

    def _set(self, user: str, column: str, value: str | int | None) -> None:
        self._write(
            f"INSERT INTO profiles (user, {column}) VALUES (?, ?) "  # noqa: S608
            f"ON CONFLICT (user) DO UPDATE SET {column} = excluded.{column}",
            *(user, value),
        )

    def _write(self, statement: str, *values: str | int | None) -> None:
        with self._lock:
            self._connection.execute(statement, values)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _add_columns(connection: sqlite3.Connection) -> None:
    """Migrate a database of an earlier version: what was shown was exact, and had no end."""
    columns = {row[1] for row in connection.execute("PRAGMA table_info (friendships)")}
    for name, definition in _LATER_COLUMNS.items():
        if name not in columns:
            connection.execute(f"ALTER TABLE friendships ADD COLUMN {name} {definition}")


def _date_friendships(connection: sqlite3.Connection) -> None:
    """Migrate a database of an earlier version, in which friendships had no start.

    Their start is unknown, so they begin now, and nobody is shown too much.
    """
    columns = {row[1] for row in connection.execute("PRAGMA table_info (friendships)")}
    if "since" not in columns:
        connection.execute("ALTER TABLE friendships ADD COLUMN since INTEGER NOT NULL DEFAULT 0")
        dated = connection.execute("UPDATE friendships SET since = ?", (_now_ms(),)).rowcount
        if dated:
            logger.warning(
                "%d friendships of an earlier version begin now: friends see what comes from now "
                "on; `waylog user friend USER FRIEND --since TIME` lets one begin earlier",
                dated,
            )
