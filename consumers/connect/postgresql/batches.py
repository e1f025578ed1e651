"""Stores batches of rows, all rows of a batch but those that the database refuses.

A batch is copied into a table of the session and moved from there by one statement, in one
transaction. If the database refuses that, the rows are copied once more, as texts, and a block of
PL/pgSQL (`statements.one_by_one`) stores those that it can and notes the others, again in one
transaction: what a refused row costs does not depend on how many others there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.sql import Composed, Identifier

from consumers.connect.data.exceptions import DataException
from consumers.connect.postgresql import statements
from consumers.connect.postgresql.database import Connection, Database
from consumers.connect.postgresql.failures import Cause, cause_of, error_text, failure_text
from consumers.connect.postgresql.row_layout import Row

#: What psycopg raises for a value that it cannot write, besides its own errors.
_UNWRITABLE: Final = (UnicodeError, OverflowError, TypeError, ValueError)
_encode: Final = msgspec.json.Encoder().encode


class StructureChanged(Exception):
    """The table is no longer as it was."""


class Statements(NamedTuple):
    """What stores rows of the same columns, or deletes them."""

    copy_into: Composed  # copies rows into a table of the session
    then: Composed  # does what is to be done with them
    #: Given the tables for texts and for refused rows: does it with rows that were copied as texts.
    one_by_one: Callable[[tuple[Identifier, Identifier]], Composed]


class RefusedRow(NamedTuple):
    """The position of a row that is refused, and why."""

    position: int
    error: DataException


class Batches:
    """Stores batches by the connection of one task."""

    def __init__(self, database: Database) -> None:
        self._database: Final = database

    def store(self, rows: Sequence[Row], by: Statements) -> list[RefusedRow]:
        """Store rows in one transaction; return those that the database refuses, in their order.

        Raises StructureChanged, and psycopg.Error for what is about no row; then none is stored.
        """
        try:
            try:
                self._store_at_once(rows, by)
            except (psycopg.Error, *_UNWRITABLE) as error:
                self._database.rollback()
                # Policies of row-level security and triggers have codes that otherwise are about
                # rights, or codes of their own.
                if cause_of(error) not in (Cause.RECORD, Cause.SET_UP):
                    raise
                return self._store_one_by_one(rows, by)
        except psycopg.Error as error:
            self._database.rollback()
            if cause_of(error) is Cause.STRUCTURE:
                raise StructureChanged(error_text(error)) from error
            raise
        return []

    def _store_at_once(self, rows: Sequence[Row], by: Statements) -> None:
        connection = self._database.connection()
        with connection.cursor() as cursor:
            with cursor.copy(by.copy_into) as copy:
                for row in rows:
                    copy.write_row(row)
            cursor.execute(by.then)
        connection.commit()

    def _store_one_by_one(self, rows: Sequence[Row], by: Statements) -> list[RefusedRow]:
        tables = self._database.tables_for_refused_rows()
        fields, refused = tables
        connection = self._database.connection()
        texts, found = _texts(connection, rows)
        with connection.cursor() as cursor:
            # Also those of constraints that otherwise are checked at the end of a transaction.
            cursor.execute(statements.CHECK_AT_ONCE)
            # What fails without rows is about none of them.
            cursor.execute(by.then)
            with cursor.copy(statements.copy_fields(fields)) as copy:
                for each in texts:
                    copy.write_row(each)
            cursor.execute(by.one_by_one(tables))
            cursor.execute(statements.select_refused(refused))
            found += [
                RefusedRow(position, DataException(failure_text(message, column, code)))
                for position, code, message, column in cursor.fetchall()
            ]
        connection.commit()
        return sorted(found, key=lambda each: each.position)


def _texts(
    connection: Connection, rows: Sequence[Row]
) -> tuple[list[tuple[int, str]], list[RefusedRow]]:
    """Return positions and values of rows, as PostgreSQL has them in text, as arrays of JSON.

    The second list has the rows that cannot be written so.
    """
    dump = Transformer(connection).dump_sequence
    texts: list[tuple[int, str]] = []
    refused: list[RefusedRow] = []
    for position, row in enumerate(rows):
        try:
            values = [
                None if each is None else bytes(each).decode()
                for each in dump(row, [PyFormat.TEXT] * len(row))
            ]
        except (psycopg.Error, *_UNWRITABLE) as error:
            refused.append(RefusedRow(position, DataException(error_text(error))))
        else:
            texts.append((position, _encode(values).decode()))
    return texts, refused
