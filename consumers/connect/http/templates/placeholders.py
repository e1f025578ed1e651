"""Texts with `${field}` in them, for URLs, forms and JSON.

`${lat}` is the field `lat` of the value, `${attributes.hdop}` a member of an object in it;
`${@key}`, `${@topic}`, `${@partition}`, `${@offset}` and `${@timestamp}` are the record's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import msgspec

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.json_text import json_bytes
from consumers.connect.data.records import SinkRecord
from consumers.connect.data.structs import Struct
from consumers.connect.data.value_text import java_text
from waylog.malformed import MALFORMED

_PLACEHOLDER: Final = re.compile(r"\$\{([^${}:]*)\}")
_OWN: Final[dict[str, Callable[[SinkRecord], Any]]] = {
    "@key": lambda record: record.key,
    "@topic": lambda record: record.topic,
    "@partition": lambda record: record.partition,
    "@offset": lambda record: record.offset,
    "@timestamp": lambda record: record.timestamp,
}

Write = Callable[[Any], str]


def percent_encoded(value: Any) -> str:
    """Return a value for a URL or a form; raises DataException for half of a surrogate pair."""
    try:
        return "" if value is None else quote(java_text(value), safe="")
    except UnicodeEncodeError as error:
        raise DataException("it has half of a surrogate pair, which is no text") from error


def _json(value: Any) -> str:
    return json_bytes(value).decode()


def _in_json_text(value: Any) -> str:
    """Return a value as it stands between the quotes of a JSON string."""
    return "" if value is None else json_bytes(java_text(value))[1:-1].decode()


def plain_text(value: Any) -> str:
    """Return a value as it is."""
    return "" if value is None else java_text(value)


class TextTemplate:
    """A text with placeholders."""

    def __init__(self, name: str, text: str, write: Write | None) -> None:
        """`name` is the property; `write` makes a text of a value, None: as JSON wants it where the
        placeholder is. Raises ConfigException for a placeholder without a name.
        """
        self._name: Final = name
        parts: list[str] = []
        fields: list[tuple[str, ...]] = []
        writes: list[Write] = []
        end = quotes = 0
        for found in _PLACEHOLDER.finditer(text):
            if not found[1].strip():
                raise ConfigException(f"{name}: a placeholder has no name: {found[0]}")
            if found[1].startswith("@") and found[1] not in _OWN:
                raise ConfigException(f"{name}: {found[0]} is none of {', '.join(_OWN)}")
            literal = text[end : found.start()]
            quotes += len(re.findall(r'(?<!\\)"', literal))
            parts.append(literal)
            fields.append(tuple(found[1].strip().split(".")))
            writes.append(write or (_in_json_text if quotes % 2 else _json))
            end = found.end()
        self._rest: Final = text[end:]
        self._parts: Final = tuple(zip(parts, fields, writes, strict=True))

    @property
    def is_constant(self) -> bool:
        """Tell whether there are no placeholders."""
        return not self._parts

    @property
    def fields(self) -> list[str]:
        """The fields of values that fill it, as they are written."""
        paths = (path for _, path, _ in self._parts if path[0] not in _OWN)
        return [_written(path) for path in paths]

    def filled(self, record: SinkRecord, value: Any) -> str:
        """Return the text for a record, `value` being what `fields_of` returned.

        Raises DataException for a value without fields, and for what cannot be written.
        """
        texts: list[str] = []
        for literal, path, write in self._parts:
            texts.append(literal)
            try:
                texts.append(write(_found(record, value, path)))
            except DataException as error:
                raise DataException(f"{self._name}: {_written(path)}: {error}") from error
        texts.append(self._rest)
        return "".join(texts)


def fields_of(record: SinkRecord) -> Any:
    """Return the value whose fields fill a template: JSON in a text is read.

    A text that is no JSON has no fields: None.
    """
    value = record.value
    if isinstance(value, (str, bytes)):
        try:
            return msgspec.json.decode(value)
        except MALFORMED:
            return None
    return value


def _written(path: tuple[str, ...]) -> str:
    return "${" + ".".join(path) + "}"


def _found(record: SinkRecord, value: Any, path: tuple[str, ...]) -> Any:
    own = _OWN.get(path[0])
    if own is not None:
        return own(record)
    if not isinstance(value, (dict, Struct)):
        raise DataException("the value is no object, and has no fields")
    for name in path:
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, Struct):
            value = value.get(name) if name in value.schema.fields_by_name else None
        else:
            return None
    return value
