"""Writes records into one table, so that the newest record of each key remains.

A batch is copied into a table of the session and moved from there by one statement, in one
transaction. Where the database refuses a batch because of a record, it is divided until that record
is found; the others are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import psycopg

from consumers.connect.data.exceptions import ConnectException, DataException
from consumers.connect.data.records import SinkRecord
from consumers.connect.data.schemas import Schema
from consumers.connect.data.structs import Struct
from consumers.connect.postgresql import statements
from consumers.connect.postgresql.bisection import Refused, store_all_but_refused
from consumers.connect.postgresql.database import Database
from consumers.connect.postgresql.erased_rows import ErasedRows
from consumers.connect.postgresql.failures import Cause, cause_of, error_text
from consumers.connect.postgresql.geometry import WGS84
from consumers.connect.postgresql.items import Item, Key
from consumers.connect.postgresql.keys import KeyReader
from consumers.connect.postgresql.layouts import Layouts
from consumers.connect.postgresql.properties import Settings
from consumers.connect.postgresql.row_layout import Row, RowLayout
from consumers.connect.postgresql.table_name import TableName
from consumers.connect.postgresql.table_structure import TableStructure
from waylog.malformed import MALFORMED

#: What psycopg raises for a value that it cannot write at all, without asking the server.
_UNWRITABLE: Final = (psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError,
                      UnicodeError, OverflowError, TypeError, ValueError)  # fmt: skip


class Refusal(NamedTuple):
    """A record that the table does not take, and why."""

    record: SinkRecord
    error: ConnectException


_json_decoder: Final = msgspec.json.Decoder()
_Store = Callable[[Sequence[Row]], None]


class StructureChanged(Exception):
    """The table is no longer as it was."""


class TableWriter:
    """Writes into one table."""

    def __init__(
        self, settings: Settings, database: Database, table: TableName, task: str = ""
    ) -> None:
        """`task` names the task, among all that write into the database."""
        self._settings: Final = settings
        self._database: Final = database
        self._table: Final = table
        self._keys: Final = KeyReader(settings)
        self._structure: Final = TableStructure(database, table)
        self._layouts: Final = Layouts(settings, database, self._keys, self._structure)
        self._erased: Final = ErasedRows(settings, database, self._structure, task)

    def write(self, records: Sequence[SinkRecord]) -> list[Refusal]:
        """Store records; return those that the table does not take.

        Raises Unavailable, and ConnectException where somebody has to change something. What was
        stored before stays stored.
        """
        try:
            try:
                return self._write(records)
            except (StructureChanged, psycopg.Error) as error:
                is_changed = isinstance(error, StructureChanged)
                if not is_changed and cause_of(error) is not Cause.STRUCTURE:
                    raise
            self._layouts.forget()
            self._database.forget()
            return self._write(records)
        except StructureChanged as error:
            raise ConnectException(f"{self._text()}: {error}") from None
        except psycopg.Error as error:
            self._database.rollback()
            raise self._database.failed(error, self._text()) from None

    def erase(self, erasures: Mapping[str, int]) -> None:
        """Delete rows of erased devices; the times are in ms. Raises as `write`."""
        try:
            self._erased.delete(erasures)
        except psycopg.Error as error:
            self._database.rollback()
            raise self._database.failed(error, f"{self._text()}: erasing") from None

    def _write(self, records: Sequence[SinkRecord]) -> list[Refusal]:
        refused: list[Refusal] = []
        items = self._items(records, refused)
        if not self._keys.columns:
            self._store(items, refused)
            return refused
        # A row is written once in a batch. Should the record that counts be refused, the next one
        # of its key does.
        newest: dict[Key, Item] = {}
        older: dict[Key, list[Item]] = {}
        for item in items if self._settings.is_upsert else reversed(items):
            before = newest.get(item.key)
            if before is not None:
                older.setdefault(item.key, []).append(before)
            newest[item.key] = item
        counting = list(newest.values())
        while counting:
            failed = self._store(counting, refused)
            counting = [older[key].pop() for key in failed if older.get(key)]
        return refused

    def _items(self, records: Sequence[SinkRecord], refused: list[Refusal]) -> list[Item]:
        read_key = self._keys.read
        items: list[Item] = []
        for record in records:
            value: Any = record.value
            try:
                class_ = value.__class__
                if class_ is str or class_ is bytes:
                    value = _object_of(value)
                    class_ = value.__class__
                if class_ is dict:
                    items.append(Item(record, read_key(record, value), value, True))
                elif class_ is Struct:
                    items.append(Item(record, read_key(record, value), value, value.schema))
                elif value is None and self._settings.deletes:
                    items.append(Item(record, read_key(record, value), value, False))
                elif value is None:
                    raise DataException("the record has no value, and delete.enabled is false")
                else:
                    raise DataException(
                        f"the value is neither a struct nor an object: {type(value).__name__}"
                    )
            except DataException as error:
                refused.append(Refusal(record, error))
        return items

    def _store(self, items: Sequence[Item], refused: list[Refusal]) -> list[Key]:
        """Store items of different keys; return the keys of those that are refused."""
        failed: list[Key] = []

        def refuse(item: Item, error: BaseException) -> None:
            failed.append(item.key)
            refused.append(Refusal(item.record, _refusal(error)))

        for form, group in _by_form(items):
            if form is False:
                owners, rows = group, [list(item.key) for item in group]
                store: _Store = self._delete
            else:
                owners, rows = [], []
                try:
                    layout = (
                        self._layouts.of_structs(form, group)
                        if isinstance(form, Schema)
                        else self._layouts.of_objects(group)
                    )
                except DataException as error:
                    for item in group:
                        refuse(item, error)
                    continue
                row_of = layout.row
                for item in group:
                    try:
                        rows.append(row_of(item.key, item.value))
                        owners.append(item)
                    except DataException as error:
                        refuse(item, error)
                if not rows:
                    continue
                store = self._merge(layout)
            size = self._settings.batch_records
            for start in range(0, len(rows), size):
                for each in store_all_but_refused(rows[start : start + size], store):
                    refuse(owners[start + each.position], each.error)
        return failed

    def _merge(self, layout: RowLayout) -> _Store:
        """Return what stores rows in one transaction."""
        columns, settings = layout.columns, self._settings
        name = settings.geometry_field
        column = self._structure.columns().get(name)
        place: tuple[str, str, int] | None = None
        if column is not None and name in columns and column.type == "geometry":
            schema = self._database.postgis_schema()
            if schema is not None and settings.geometry_srid != WGS84:
                place = (name, schema, settings.geometry_srid)
        staging = self._database.staging(self._table, columns, place and place[:2])
        copy = statements.copy_into(staging, columns)
        merge = statements.merge(
            *(staging, self._table.identifier, columns, self._keys.columns, place),
            is_upsert=settings.is_upsert,
        )
        return lambda rows: self._transaction(copy, merge, rows)

    def _delete(self, rows: Sequence[Row]) -> None:
        if not self._structure.columns():
            return  # there is no table yet
        key = self._keys.columns
        staging = self._database.staging(self._table, key)
        self._transaction(
            statements.copy_into(staging, key),
            statements.delete(staging, self._table.identifier, key),
            rows,
        )

    def _transaction(self, copy_into: Any, then: Any, rows: Sequence[Row]) -> None:
        """Copy rows and do what is to be done with them.

        Raises Refused if a row cannot be stored, and then none is.
        """
        database = self._database
        connection = database.connection()
        position = -1
        is_copied = False
        try:
            with connection.cursor() as cursor:
                with cursor.copy(copy_into) as copy:
                    write_row = copy.write_row
                    for position, row in enumerate(rows):  # noqa: B007 - told by the error
                        write_row(row)
                    position = -1
                is_copied = True
                cursor.execute(then)
            connection.commit()
        except _UNWRITABLE as error:
            database.rollback()
            if getattr(error, "sqlstate", None) is None:
                if position < 0:
                    raise
                raise Refused(error, position) from error
            self._raise(error, then if is_copied else None)
        except psycopg.Error as error:
            database.rollback()
            self._raise(error, then if is_copied else None)

    def _raise(self, error: BaseException, statement: Any) -> None:
        """Raise what an error means; `statement` is the one that failed, None if that was COPY."""
        cause = cause_of(error)
        if cause is Cause.RECORD or (
            cause is Cause.SET_UP and statement is not None and self._does_without_rows(statement)
        ):
            raise Refused(error) from error
        if cause is Cause.STRUCTURE:
            raise StructureChanged(error_text(error)) from error
        raise error

    def _does_without_rows(self, statement: Any) -> bool:
        """Tell whether the database does what it refused to do with rows if there are none.

        Policies of row-level security and triggers of rows refuse with codes that otherwise are
        about rights, or with codes of their own; only rows make them speak.
        """
        try:
            self._database.connection().execute(statement)
        except psycopg.Error:
            return False
        finally:
            self._database.rollback()
        return True

    def _text(self) -> str:
        return f"table {self._table}"


def _by_form(items: Sequence[Item]) -> Iterator[tuple[Schema | bool, list[Item]]]:
    """Yield the items with the same form; their order is of no matter, their keys differ."""
    groups: dict[Schema | bool, list[Item]] = {}
    for item in items:
        groups.setdefault(item.form, []).append(item)
    yield from groups.items()


def _object_of(text: str | bytes) -> Any:
    """Return what a JSON text says; raises DataException."""
    try:
        return _json_decoder.decode(text)
    except MALFORMED as error:
        raise DataException(f"the value is no JSON: {error}") from error


def _refusal(error: BaseException) -> ConnectException:
    if isinstance(error, ConnectException):
        return error
    # Without its cause, which would show the row in a traceback.
    return DataException(error_text(error))
