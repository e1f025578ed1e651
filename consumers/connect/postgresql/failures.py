"""What an error of PostgreSQL says: about a record, about the database, or about the set-up.

Source: PostgreSQL's documentation, appendix A, "PostgreSQL Error Codes".
"""

from __future__ import annotations

import enum
import re
from typing import Final

import psycopg


class Cause(enum.Enum):
    """Whose fault an error is."""

    RECORD = "record"  # a value that the table does not take
    AWAY = "away"  # a database that may take the same later
    STRUCTURE = "structure"  # a table that is not as it was
    SET_UP = "set-up"  # anything else: somebody has to change something


#: Data exceptions, cardinality, integrity, check options of views, limits (a row too large for an
#: index), exceptions of triggers; PostGIS reports bad points as internal errors.
_RECORD: Final = ("22", "21", "23", "44", "54", "P0001", "XX000")
#: Connections, rollbacks (deadlocks), resources (a full disk), locks, interventions of operators,
#: errors of the system; a server that became a standby.
_AWAY: Final = ("08", "40", "53", "55", "57", "58", "25006")
#: Undefined table and column, a column of another type, a cached plan that is no longer right.
_STRUCTURE: Final = ("42P01", "42703", "42804", "0A000")
#: What the codes of errors begin with that are about no row.
NOT_OF_A_ROW: Final = (*_AWAY, *_STRUCTURE)
#: A refused login: libpq passes on no code, only the server's words.
_REFUSED: Final = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|is not permitted to log in"
    r"|(?:role|database) \"[^\"]*\" does not exist|server does not support SSL",
    re.IGNORECASE,
)
#: Where COPY has failed, as a server says it that speaks English.
_COPIED_COLUMN: Final = re.compile(r"^COPY [^\n]*?, line \d+, column ([^:\n]+):")


def cause_of(error: BaseException) -> Cause:
    """Return whose fault an error of a statement is."""
    code = getattr(error, "sqlstate", None)
    if code is not None:
        for codes, cause in (
            (_RECORD, Cause.RECORD),
            (_AWAY, Cause.AWAY),
            (_STRUCTURE, Cause.STRUCTURE),
        ):
            if code.startswith(codes):
                return cause
        return Cause.SET_UP
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return Cause.AWAY
    return Cause.SET_UP


def login_is_refused(error: psycopg.Error) -> bool:
    """Tell whether an attempt to connect failed for a reason that waiting does not cure.

    That is known only of servers that speak English; others are asked again.
    """
    return _REFUSED.search(str(error)) is not None


def error_text(error: BaseException) -> str:
    """Return an error in one line, with its column and code.

    Detail and context are left out: they have the whole row, and errors are logged.
    """
    diagnostics = getattr(error, "diag", None)
    primary = getattr(diagnostics, "message_primary", None)
    if not primary:
        return " ".join(str(error).split()) or type(error).__name__
    column = getattr(diagnostics, "column_name", None)
    if not column:
        found = _COPIED_COLUMN.search(str(getattr(diagnostics, "context", None) or ""))
        column = found[1] if found is not None else None
    return failure_text(primary, column, getattr(error, "sqlstate", None))


def failure_text(message: str, column: str | None, code: str | None) -> str:
    """Return what a server has said about an error in one line."""
    where = f" (column {column})" if column else ""
    return f"{message}{where} [{code}]"
