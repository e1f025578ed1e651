"""How a record becomes a row: which fields go to which columns, and through which conversion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.schemas import Schema
from consumers.connect.postgresql.column_types import Convert, converter_of
from consumers.connect.postgresql.geometry import point
from consumers.connect.postgresql.items import Key
from consumers.connect.postgresql.table_structure import Column, some_of

Row = list[Any]


class RowLayout:
    """The rows of records with the same fields. It never changes."""

    __slots__ = ("_conversions", "_missing", "_place", "_read", "_with_key", "columns")

    def __init__(
        self,
        key: Sequence[str],
        fields: Sequence[str],
        missing: Mapping[str, str],
        table: Mapping[str, Column],
        *,
        key_is_in_value: bool,
        schema: Schema | None,
        place: tuple[str, str, str] | None,
    ) -> None:
        """`fields` are those of the value that are columns; `missing` are those that should be and
        are not, with the reason. `place` are the column for a point, and the fields with latitude
        and longitude.
        """
        others = [name for name in fields if name not in key]
        read = [*key, *others] if key_is_in_value else others
        self.columns: Final = (*key, *others, *(() if place is None else place[:1]))
        self._with_key: Final = not key_is_in_value
        self._read: Final = _reader(read, schema)
        self._missing: Final = None if not missing else (missing, _reader(list(missing), schema))
        self._place: Final = None if place is None else _reader(place[1:], schema)
        self._conversions: Final[tuple[tuple[int, str, type | None, Convert], ...]] = tuple(
            (index, name, *found)
            for index, name in enumerate([*key, *others])
            if (found := converter_of(table[name].kind)) is not None
        )

    @property
    def lacks_columns(self) -> bool:
        """Return True if there are fields that no column of the table takes."""
        return self._missing is not None

    def row(self, key: Key, value: Any) -> Row:
        """Return the values of the columns, at least one; raises DataException."""
        row = [*key, *self._read(value)] if self._with_key else self._read(value)
        for index, name, class_, convert in self._conversions:
            found = row[index]
            if found is not None and found.__class__ is not class_:
                try:
                    row[index] = convert(found)
                except DataException as error:
                    raise DataException(f"field {name}: {error}") from error
        if self._place is not None:
            row.append(point(*self._place(value)))
        if self._missing is not None:
            self._refuse_missing(value)
        if not row:
            raise DataException("the record has no field that is a column")
        return row

    def _refuse_missing(self, value: Any) -> None:
        assert self._missing is not None
        reasons, read = self._missing
        lost: dict[str, list[str]] = {}
        for name, each in zip(reasons, read(value), strict=True):
            if each is not None:
                lost.setdefault(reasons[name], []).append(name)
        if lost:
            told = "; ".join(f"{some_of(names)}: {reason}" for reason, names in lost.items())
            raise DataException(
                f"no column of the table takes {told}, or leave the field out with fields.whitelist"
            )


def _reader(names: Sequence[str], schema: Schema | None) -> Callable[[Any], Row]:
    if schema is None:
        fixed = tuple(names)

        def of_object(value: Any) -> Row:
            get = value.get
            return [get(name) for name in fixed]

        return of_object
    fields = schema.fields_by_name
    indices = [fields[name].index if name in fields else None for name in names]
    defaults = any(field.schema.default is not None for field in schema.fields)

    def of_struct(value: Any) -> Row:
        values = value.values_with_defaults() if defaults else value.values
        return [None if index is None else values[index] for index in indices]

    return of_struct
