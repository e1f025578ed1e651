"""The columns of one table: read from the catalog, created and added as the properties allow."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import psycopg
from psycopg.sql import Composed

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.postgresql import statements
from consumers.connect.postgresql.column_types import ColumnKind, kind_of
from consumers.connect.postgresql.database import Database
from consumers.connect.postgresql.failures import Cause, cause_of, error_text
from consumers.connect.postgresql.table_name import TableName

logger = logging.getLogger(__name__)

_NAMES_SHOWN: Final = 10
#: Of two tasks that create the same table at once.
CREATED_MEANWHILE: Final = ("42P07", "42701", "23505", "42710")


class Column(NamedTuple):
    """A column as the catalog has it."""

    type: str  # its short name (`pg_type.typname`)
    kind: ColumnKind


class TableStructure:
    """What is known of a table."""

    def __init__(self, database: Database, name: TableName) -> None:
        self._database: Final = database
        self.name: Final = name
        self._columns: dict[str, Column] | None = None

    def forget(self) -> None:
        """Read the catalog again next time."""
        self._columns = None

    def columns(self) -> Mapping[str, Column]:
        """Return the columns by name, none if there is no table; raises psycopg.Error."""
        if not self._columns:
            connection = self._database.connection()
            text = self.name.identifier.as_string(connection)
            rows = connection.execute(statements.COLUMNS, (text,)).fetchall()
            connection.commit()
            self._columns = {
                name: Column(type_, kind_of(type_, category, generated=generated))
                for name, type_, category, generated in rows
            }
        return self._columns

    def create(self, types: Mapping[str, Composed], key: Sequence[str]) -> str | None:
        """Create the table; return why it cannot have these columns, if so.

        Raises psycopg.Error.
        """
        logger.info("creating table %s", self.name)
        return self._define(statements.create_table(self.name.identifier, types, key))

    def add(self, types: Mapping[str, Composed]) -> str | None:
        """Add columns, all or none; return why the table cannot have them, if so.

        Raises psycopg.Error.
        """
        logger.info("adding columns %s to table %s", some_of(types), self.name)
        return self._define(statements.add_columns(self.name.identifier, types))

    def missing_table(self) -> ConnectException:
        """Return the error for a table that must not be created."""
        return ConnectException(f"table {self.name} does not exist, and auto.create is false")

    def _define(self, statement: Composed) -> str | None:
        self.forget()
        connection = self._database.connection()
        try:
            connection.execute(statement)
            connection.commit()
        except psycopg.Error as error:
            self._database.rollback()
            if error.sqlstate in CREATED_MEANWHILE:
                return None
            if cause_of(error) is not Cause.RECORD:
                raise
            # Too many columns, or a row type that is too large.
            text = error_text(error)
            logger.warning("%s: %s", self.name, text)
            return text
        return None


def some_of(names: Iterable[str]) -> str:
    """Return names for a message, the first of them if they are many."""
    listed = list(names)
    more = len(listed) - _NAMES_SHOWN
    text = ", ".join(listed[:_NAMES_SHOWN])
    return f"{text} and {more} more" if more > 0 else text
