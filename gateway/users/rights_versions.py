"""Numbered changes of rights, recorded by triggers in the database.

Any change of users, credentials or rights, also by the command line, leaves a row for every user it
concerns. So a process finds with one indexed query whose rights it has to read again. New
credentials are not recorded: existing connections use other ones.
"""

from __future__ import annotations

import sqlite3
from typing import Final

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS rights_versions (
    user TEXT PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS rights_versions_by_version ON rights_versions (version);
"""

#: Table, event, and the column with the user whose rights change.
_CONCERNED: Final = (
    ("users", "INSERT", "NEW.name"),
    ("users", "UPDATE", "NEW.name"),
    ("users", "DELETE", "OLD.name"),
    ("credentials", "UPDATE", "NEW.user"),
    ("credentials", "DELETE", "OLD.user"),
    ("sessions", "DELETE", "OLD.user"),
    ("shares", "DELETE", "OLD.user"),
    ("profiles", "INSERT", "NEW.user"),
    ("profiles", "UPDATE", "NEW.user"),
    ("profiles", "DELETE", "OLD.user"),
    ("friendships", "INSERT", "NEW.friend"),
    ("friendships", "UPDATE", "NEW.friend"),
    ("friendships", "DELETE", "OLD.friend"),
    ("friend_blocks", "INSERT", "NEW.user"),
    ("friend_blocks", "DELETE", "OLD.user"),
    ("topic_grants", "INSERT", "NEW.user"),
    ("topic_grants", "UPDATE", "NEW.user"),
    ("topic_grants", "DELETE", "OLD.user"),
)


def _trigger(table: str, event: str, user: str) -> str:
    # No OR REPLACE: the conflict policy of the statement that fires a trigger takes precedence.
    return f"""
CREATE TRIGGER IF NOT EXISTS rights_of_{table}_{event.lower()} AFTER {event} ON {table} BEGIN
    INSERT INTO rights_versions (user, version) SELECT {user}, 0
        WHERE NOT EXISTS (SELECT 1 FROM rights_versions WHERE user = {user});
    UPDATE rights_versions SET version = (SELECT MAX(version) + 1 FROM rights_versions)
        WHERE user = {user};
END;
"""  # noqa: S608


SCHEMA: Final = _TABLE + "\n".join(_trigger(*each) for each in _CONCERNED)


def newest(connection: sqlite3.Connection) -> int:
    """Return the number of the last change."""
    row = connection.execute("SELECT COALESCE(MAX(version), 0) FROM rights_versions").fetchone()
    return int(row[0])


def changed_after(connection: sqlite3.Connection, version: int) -> dict[str, int]:
    """Return the users whose rights changed after `version`, each with its last change."""
    return dict(
        connection.execute(
            "SELECT user, version FROM rights_versions WHERE version > ?", (version,)
        ).fetchall()
    )
