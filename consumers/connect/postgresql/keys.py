"""Reads what identifies a row, as `pk.mode` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import SinkRecord
from consumers.connect.data.structs import Struct
from consumers.connect.postgresql.column_types import type_of_schema, type_of_value
from consumers.connect.postgresql.items import Item, Key
from consumers.connect.postgresql.properties import Settings

_TEXT: Final = {str}
_KAFKA_TYPES: Final = ("text", "integer", "bigint")


class KeyReader:
    """Reads keys of records.

    `read` takes a record and the struct or object that it says; it raises DataException for one
    without a key.
    """

    def __init__(self, settings: Settings) -> None:
        self.columns: Final = settings.pk_fields if settings.pk_mode != "none" else ()
        #: Whether the columns of the key are fields of the value.
        self.is_in_value: Final = settings.pk_mode == "record_value"
        self._mode: Final = settings.pk_mode
        readers: dict[str, Callable[[SinkRecord, Any], Key]] = {
            "none": _no_key,
            "kafka": _place_in_log,
            "record_key": lambda record, _: self._fields(record.key, "key"),
            "record_value": self._of_value,
        }
        self.read: Final = readers[settings.pk_mode]

    def types(self, item: Item) -> dict[str, str]:
        """Return the types of the key's columns as they are for a record."""
        record = item.record
        if self._mode == "kafka":
            return dict(zip(self.columns, _KAFKA_TYPES, strict=True))
        source = record.key if self._mode == "record_key" else item.value
        schema = record.key_schema if self._mode == "record_key" else record.value_schema
        found: dict[str, str] = {}
        for name, value in zip(self.columns, item.key, strict=True):
            field = schema
            if schema is not None and isinstance(source, Struct):
                field = schema.fields_by_name[name].schema
            elif isinstance(source, dict):
                field = None
            type_ = type_of_value(value) if field is None else type_of_schema(field)
            found[name] = type_ or "text"
        return found

    def _of_value(self, _: SinkRecord, value: Any) -> Key:
        if value.__class__ is dict:
            # The ordinary case: texts of an object.
            key = tuple([value.get(name) for name in self.columns])
            if set(map(type, key)) == _TEXT:
                return key
        return self._fields(value, "value")

    def _fields(self, source: Any, what: str) -> Key:
        names = self.columns
        if source.__class__ is dict:
            get = source.get
            key = tuple([get(name) for name in names])
        elif isinstance(source, Struct):
            fields = source.schema.fields_by_name
            key = tuple([source.get(name) if name in fields else None for name in names])
        elif source is not None and what == "key" and len(names) == 1:
            key = (source,)
        else:
            raise DataException(
                f"the {what} is {'missing' if source is None else 'no struct'}, pk.fields has "
                f"{', '.join(names)}"
            )
        if None in key:
            missing = names[key.index(None)]
            raise DataException(f"field {missing} of the row's key is missing in the {what}")
        try:
            hash(key)
        except TypeError:
            raise DataException("an array or an object cannot be a row's key") from None
        return key


def _no_key(_: SinkRecord, _value: Any) -> Key:
    return ()


def _place_in_log(record: SinkRecord, _: Any) -> Key:
    return record.place
