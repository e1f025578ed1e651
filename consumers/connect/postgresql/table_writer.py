"""Writes records into one table, so that the newest record of each key remains.

Records that the table does not take are returned; the others are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import psycopg
from psycopg.sql import Composable, Composed, Identifier

from consumers.connect.data.exceptions import ConnectException, DataException
from consumers.connect.data.records import SinkRecord
from consumers.connect.data.schemas import Schema
from consumers.connect.data.structs import Struct
from consumers.connect.postgresql import statements
from consumers.connect.postgresql.batches import Batches, Statements, StructureChanged
from consumers.connect.postgresql.database import Database
from consumers.connect.postgresql.erased_rows import ErasedRows
from consumers.connect.postgresql.failures import Cause, cause_of
from consumers.connect.postgresql.geometry import WGS84
from consumers.connect.postgresql.items import Item, Key
from consumers.connect.postgresql.keys import KeyReader
from consumers.connect.postgresql.layouts import Layouts
from consumers.connect.postgresql.properties import Settings
from consumers.connect.postgresql.row_layout import RowLayout
from consumers.connect.postgresql.table_name import TableName
from consumers.connect.postgresql.table_structure import TableStructure
from waylog.malformed import MALFORMED


class Refusal(NamedTuple):
    """A record that the table does not take, and why."""

    record: SinkRecord
    error: ConnectException


_json_decoder: Final = msgspec.json.Decoder()


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
        self._batches: Final = Batches(database)

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
            raise self._database.failed(error, self._text(), self._rights()) from None

    def erase(self, erasures: Mapping[str, int]) -> None:
        """Delete rows of erased devices; the times are in ms. Raises as `write`."""
        try:
            self._erased.delete(erasures)
        except psycopg.Error as error:
            self._database.rollback()
            raise self._database.failed(
                error, f"{self._text()}: erasing", "SELECT and DELETE on the table"
            ) from None

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

        def refuse(item: Item, error: ConnectException) -> None:
            failed.append(item.key)
            refused.append(Refusal(item.record, error))

        for form, group in _by_form(items):
            if form is False:
                owners, rows = group, [list(item.key) for item in group]
                if not self._structure.columns():
                    continue  # there is no table yet
                by = self._deletion()
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
                by = self._merge(layout)
            size = self._settings.batch_records
            for start in range(0, len(rows), size):
                for each in self._batches.store(rows[start : start + size], by):
                    refuse(owners[start + each.position], each.error)
        return failed

    def _merge(self, layout: RowLayout) -> Statements:
        """Return what stores rows of a layout."""
        columns, key, settings = layout.columns, self._keys.columns, self._settings
        name = settings.geometry_field
        column = self._structure.columns().get(name)
        place: tuple[str, str, int] | None = None
        if column is not None and name in columns and column.type == "geometry":
            schema = self._database.postgis_schema()
            if schema is not None and settings.geometry_srid != WGS84:
                place = (name, schema, settings.geometry_srid)
        staging = self._database.staging(self._table, columns, place and place[:2])

        def merge(source: Composable) -> Composed:
            target = self._table.identifier
            return statements.merge(
                source, target, columns, key, place, is_upsert=settings.is_upsert
            )

        return self._statements(staging, columns, merge)

    def _deletion(self) -> Statements:
        """Return what deletes the rows of keys."""
        key = self._keys.columns

        def delete(source: Composable) -> Composed:
            return statements.delete(source, self._table.identifier, key)

        return self._statements(self._database.staging(self._table, key), key, delete)

    def _statements(
        self,
        staging: Identifier,
        columns: Sequence[str],
        then: Callable[[Composable], Composed],
    ) -> Statements:
        """`then` returns what is done with the rows of a table, or of a query in brackets."""
        key, all_rows = self._keys.columns, then(staging)
        return Statements(
            statements.copy_into(staging, columns),
            all_rows,
            lambda tables: statements.one_by_one(
                staging, tables, columns, key, all_rows, then(statements.ONE_ROW)
            ),
        )

    def _rights(self) -> str:
        """Return what the role has to be granted for writing."""
        settings = self._settings
        # Rows with the same key are looked for.
        on_table = ["SELECT", "INSERT"] if self._keys.columns else ["INSERT"]
        if settings.is_upsert:
            on_table.append("UPDATE")
        if settings.deletes:
            on_table.append("DELETE")
        needed = [f"{', '.join(on_table)} on the table", "TEMPORARY on the database"]
        if settings.auto_create:
            needed.append("CREATE on the schema if it is to create the table")
        if settings.auto_evolve:
            needed.append("to own the table if it is to add columns")
        return "; ".join(needed)

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
