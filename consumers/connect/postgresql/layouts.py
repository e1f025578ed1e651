"""Chooses the columns of records, and has the table have them as far as it may.

Of records with a schema the columns are the fields of the schema. Of records without one they are
the members of Waylog's message that they are, or else those that the records of the batch have.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from psycopg.sql import Composed

from consumers.connect.data.exceptions import ConnectException, DataException
from consumers.connect.data.schemas import Schema
from consumers.connect.postgresql import statements
from consumers.connect.postgresql.column_types import (
    TIMESTAMPTZ,
    ColumnKind,
    type_of_schema,
    type_of_value,
    wider,
)
from consumers.connect.postgresql.database import Database
from consumers.connect.postgresql.items import Item
from consumers.connect.postgresql.keys import KeyReader
from consumers.connect.postgresql.known_messages import known_columns
from consumers.connect.postgresql.properties import Settings
from consumers.connect.postgresql.row_layout import RowLayout
from consumers.connect.postgresql.table_name import is_possible_column
from consumers.connect.postgresql.table_structure import Column, TableStructure

logger = logging.getLogger(__name__)

_LAYOUTS_MAX: Final = 64
#: Seconds after which the catalog is asked again for columns that the table did not have: its owner
#: may have added them.
_ASK_AGAIN_S: Final = 5.0
_NO_EVOLUTION: Final = "set auto.evolve"
_IMPOSSIBLE_NAME: Final = "none can have that name: rename the field"
_GENERATED: Final = "the database generates its values"
#: What a layout is kept by: the schema, or the names of members.
_Form = Schema | frozenset[str]


class Layouts:
    """The layouts of the rows of one table."""

    def __init__(
        self, settings: Settings, database: Database, keys: KeyReader, structure: TableStructure
    ) -> None:
        self._settings: Final = settings
        self._database: Final = database
        self._keys: Final = keys
        self._structure: Final = structure
        self._layouts: Final[dict[_Form, RowLayout]] = {}
        self._forgotten_at = time.monotonic()
        self._said_no_postgis = False

    def forget(self) -> None:
        """Ask the catalog again, since the table has changed."""
        self._layouts.clear()
        self._structure.forget()
        self._forgotten_at = time.monotonic()

    def of_structs(self, schema: Schema, items: Sequence[Item]) -> RowLayout:
        """Return the layout of records with a schema.

        Raises psycopg.Error, and ConnectException for a table that is missing.
        """
        found = self._known(schema)
        if found is None:
            types = {field.name: type_of_schema(field.schema) for field in schema.fields}
            found = self._make(schema, types, [types], schema, items)
        return found

    def of_objects(self, items: Sequence[Item]) -> RowLayout:
        """Return the layout of records without a schema; raises as `of_structs`."""
        forms = [
            [name for name in form if type(name) is str]
            for form in dict.fromkeys(tuple(item.value) for item in items)
        ]
        names = dict.fromkeys(name for form in forms for name in form)
        form = frozenset(names)
        found = self._known(form)
        if found is None:
            types: dict[str, str] = {}
            for each in forms:
                types |= known_columns(each)
            types |= _types_of_values(names.keys() - types.keys(), items)
            found = self._make(form, types, forms, None, items)
        return found

    def _known(self, form: _Form) -> RowLayout | None:
        """Return the layout that was made of a form, unless columns may have been added since."""
        found = self._layouts.get(form)
        if found is None or not found.lacks_columns:
            return found
        if time.monotonic() - self._forgotten_at < _ASK_AGAIN_S:
            return found
        self.forget()
        return None

    def _make(
        self,
        form: _Form,
        types: Mapping[str, str],
        forms: Sequence[Iterable[str]],
        schema: Schema | None,
        items: Sequence[Item],
    ) -> RowLayout:
        """`types` are the columns that there should be, `forms` the fields of records."""
        settings, keys = self._settings, self._keys
        whitelist = settings.whitelist
        wanted = {
            name: TIMESTAMPTZ if name in settings.timestamp_fields else type_
            for name, type_ in types.items()
            if not whitelist or name in whitelist
        }
        columns, reasons = self._ensure(wanted, forms, items[0])
        for name in keys.columns:
            if name not in columns:
                raise ConnectException(f"{self._text()} has no column {name} for the key")
        missing = {
            name: _GENERATED if name in columns else _reason(name, reasons)
            for name in dict.fromkeys(name for each in forms for name in each)
            if (not whitelist or name in whitelist)
            and (name not in columns or columns[name].kind is ColumnKind.GENERATED)
            and name not in keys.columns
        }
        place = None
        if settings.geometry_field in columns:
            self._check_place(columns[settings.geometry_field])
            place = (
                settings.geometry_field,
                settings.latitude_field,
                settings.longitude_field,
            )
        layout = RowLayout(
            keys.columns,
            [
                name
                for name in wanted
                if name in columns
                and columns[name].kind is not ColumnKind.GENERATED
                and (place is None or name != place[0])
            ],
            missing,
            columns,
            key_is_in_value=keys.is_in_value,
            schema=schema,
            place=place,
        )
        if columns and not (settings.auto_evolve and missing.keys() - columns.keys()):
            # A member that is null in this batch gets its column with the first value.
            if len(self._layouts) >= _LAYOUTS_MAX:
                del self._layouts[next(iter(self._layouts))]
            self._layouts[form] = layout
        return layout

    def _ensure(
        self, types: Mapping[str, str], forms: Sequence[Iterable[str]], item: Item
    ) -> tuple[Mapping[str, Column], Mapping[str, str]]:
        """Return the columns, and why others are missing that could not be added.

        Raises DataException if the database creates no table for any of the records.
        """
        structure, settings = self._structure, self._settings
        columns = structure.columns()
        if columns and not settings.auto_evolve:
            return columns, {}
        if not columns and not settings.auto_create:
            raise structure.missing_table()
        key = self._keys.types(item)
        if self._keys.is_in_value:
            key = {name: types.get(name, type_) for name, type_ in key.items()}
        definitions = {
            name: statements.plain_type(type_)
            for name, type_ in (key | {n: t for n, t in types.items() if n not in key}).items()
            if name not in columns and is_possible_column(name)
        }
        place = self._place_type()
        if place is not None and settings.geometry_field not in columns:
            definitions[settings.geometry_field] = place
        if not definitions:
            # Records without any field say nothing of a table.
            return columns, {}
        exists, may_add = bool(columns), settings.auto_evolve
        reason = self._define(definitions, may_add=may_add)
        if reason is None:
            return structure.columns(), {}
        reasons = dict.fromkeys(definitions, reason)
        if len(forms) > 1:
            # Records are refused that need what there cannot be, not those around them.
            always = {*key, settings.geometry_field}
            for form in forms:
                needed = {*always, *form, *known_columns(list(form))}
                some = {n: t for n, t in definitions.items() if n in needed}
                why = self._define(some, may_add=may_add or not exists) if some else None
                if why is not None:
                    reasons |= dict.fromkeys(some, why)
        columns = structure.columns()
        if not columns:
            raise DataException(f"{self._text()} cannot be created: {reason}")
        return columns, reasons

    def _define(self, definitions: Mapping[str, Composed], *, may_add: bool) -> str | None:
        """Create the table or add columns that it lacks; return why it cannot have them, if so."""
        structure = self._structure
        if not structure.columns():
            reason = structure.create(definitions, self._keys.columns)
            if reason is not None:
                return reason
        # Another task, or its owner, may have made it meanwhile with other columns.
        columns = structure.columns()
        lacking = {n: t for n, t in definitions.items() if n not in columns}
        if not lacking or not may_add:
            return None
        return structure.add(lacking)

    def _place_type(self) -> Composed | None:
        if not self._settings.geometry_field:
            return None
        schema = self._database.postgis_schema()
        if schema is not None:
            return statements.place_type(schema, self._settings.geometry_srid)
        if not self._said_no_postgis:
            self._said_no_postgis = True
            logger.info("%s gets no column for places: there is no PostGIS", self._text())
        return None

    def _check_place(self, column: Column) -> None:
        name = self._settings.geometry_field
        if column.kind is not ColumnKind.PLACE:
            raise ConnectException(
                f"geometry.field: column {name} of {self._text()} is {column.type}, "
                "neither geometry nor geography"
            )

    def _text(self) -> str:
        return f"table {self._structure.name}"


def _reason(name: str, reasons: Mapping[str, str]) -> str:
    """Return why there is no column of this name; `reasons` are those of columns that were tried.

    A name that no column can have is no matter of what else the table could not have.
    """
    return reasons.get(name, _NO_EVOLUTION) if is_possible_column(name) else _IMPOSSIBLE_NAME


def _types_of_values(names: Iterable[str], items: Sequence[Item]) -> dict[str, str]:
    """Return the types of members; one that is null in all records has none."""
    found: dict[str, str] = {}
    for name in sorted(names):
        type_: str | None = None
        for item in items:
            type_ = wider(type_, type_of_value(item.value.get(name)))
        if type_ is not None:
            found[name] = type_
    return found
