"""Finds out what a header's text is: the schema that `Values.parseString` of Kafka gives it.

Numbers, true, false, null, ISO 8601 dates and times, and arrays and maps of these in brackets are
recognised; any other text is a string. Differences from Kafka: text behind a complete value makes
the whole a string, instead of being dropped; times are read strictly, in UTC; `\\"` within a quoted
string is read as it was written.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from typing import Any, Final

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import DATE, TIME, TIMESTAMP, decimal_schema
from consumers.connect.data.schemas import (
    BOOLEAN,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NULL,
    STRING,
    Schema,
    SchemaAndValue,
    Type,
)
from consumers.connect.java.number_text import INT64_MAX, INT64_MIN, fits, parse_decimal, to_float32

_NESTING_MAX: Final = 64
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(r"\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_WORD: Final = re.compile(r"[^\s:,{}\[\]\"]+(?:[^:,{}\[\]\"]*[^\s:,{}\[\]\"])?")
_BLANK: Final = re.compile(r"\s*")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_LITERALS: Final = {
    "null": NULL,
    "true": SchemaAndValue(BOOLEAN, True),
    "false": SchemaAndValue(BOOLEAN, False),
}
_INTEGERS: Final = ((INT8, 8), (INT16, 16), (INT32, 32), (INT64, 64))
_WIDTHS: Final = {
    Type.INT8: 0,
    Type.INT16: 1,
    Type.INT32: 2,
    Type.INT64: 3,
    Type.FLOAT32: 4,
    Type.FLOAT64: 5,
}


def parse_text(text: str) -> SchemaAndValue:
    """Return the value that a text stands for, with its schema; never raises."""
    stripped = text.strip()
    if not stripped:
        return SchemaAndValue(STRING, text)
    if stripped[0] in "[{":
        parser = _Parser(stripped)
        try:
            found = parser.value(0)
            if parser.position == len(stripped):
                return found
        except DataException:
            pass
    else:
        literal = _LITERALS.get(stripped) or _time_of(stripped) or _number_of(stripped)
        if literal is not None:
            return literal
    return SchemaAndValue(STRING, text)


def _time_of(text: str) -> SchemaAndValue | None:
    try:
        if _TIMESTAMP.fullmatch(text):
            read = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
            return SchemaAndValue(TIMESTAMP, read.replace(tzinfo=UTC))
        if _DATE.fullmatch(text):
            return SchemaAndValue(DATE, date.fromisoformat(text))
        if _TIME.fullmatch(text):
            return SchemaAndValue(TIME, time.fromisoformat(text[:-1]))
    except ValueError:
        # No day of the calendar: a string.
        return None
    return None


def _number_of(text: str) -> SchemaAndValue | None:
    number = parse_decimal(text)
    if number is None:
        return None
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "the expression matches no NaN"
    if (not number or number.adjusted() < 20) and number == number.to_integral_value():
        whole = int(number)
        if INT64_MIN <= whole <= INT64_MAX:
            for schema, bits in _INTEGERS:
                if fits(whole, bits):
                    return SchemaAndValue(schema, whole)
    if exponent != 0:
        wide = float(number)
        narrow = to_float32(wide)
        if abs(narrow) != float("inf"):
            return SchemaAndValue(FLOAT32, narrow)
        if abs(wide) != float("inf"):
            return SchemaAndValue(FLOAT64, wide)
    return SchemaAndValue(decimal_schema(-exponent), number)


class _Parser:
    """Reads arrays and maps; raises DataException for any other text."""

    def __init__(self, text: str) -> None:
        self._text: Final = text
        self.position = 0

    def value(self, depth: int) -> SchemaAndValue:
        if depth > _NESTING_MAX:
            raise DataException("nested too deeply")
        self._skip_blank()
        character = self._text[self.position : self.position + 1]
        if character == "[":
            self.position += 1
            return self._array(depth)
        if character == "{":
            self.position += 1
            return self._map(depth)
        if character == '"':
            return self._quoted()
        for expression in (_TIMESTAMP, _TIME):
            found = expression.match(self._text, self.position)
            parsed = _time_of(found[0]) if found is not None else None
            if found is not None and parsed is not None:
                self.position = found.end()
                return parsed
        word = _WORD.match(self._text, self.position)
        if word is None:
            raise DataException("Failed to parse embedded value")
        self.position = word.end()
        literal = _LITERALS.get(word[0]) or _time_of(word[0]) or _number_of(word[0])
        if literal is None:
            raise DataException("Failed to parse embedded value")
        return literal

    def _skip_blank(self) -> None:
        found = _BLANK.match(self._text, self.position)
        assert found is not None, "it matches nothing at all, too"
        self.position = found.end()

    def _take(self, character: str) -> bool:
        self._skip_blank()
        if self._text.startswith(character, self.position):
            self.position += 1
            return True
        return False

    def _quoted(self) -> SchemaAndValue:
        found = _QUOTED.match(self._text, self.position)
        if found is None:
            raise DataException("a quote is missing")
        self.position = found.end()
        content = _ESCAPED.sub(r"\1", found[1])
        return _time_of(content) or SchemaAndValue(STRING, content)

    def _array(self, depth: int) -> SchemaAndValue:
        elements: list[Any] = []
        common = _CommonSchema()
        while not self._take("]"):
            schema, element = self.value(depth + 1)
            common.add(schema)
            elements.append(element)
            if not self._take(",") and not self._text.startswith("]", self.position):
                raise DataException("Array elements missing ',' delimiter")
        schema = Schema(Type.ARRAY, value_schema=common.schema)
        return SchemaAndValue(schema, [common.aligned(each) for each in elements])

    def _map(self, depth: int) -> SchemaAndValue:
        entries: list[tuple[Any, Any]] = []
        keys, values = _CommonSchema(), _CommonSchema()
        while not self._take("}"):
            key_schema, key = self.value(depth + 1)
            if key is None or isinstance(key, (list, dict)):
                raise DataException("Map entry may not have a null key")
            if not self._take(":"):
                raise DataException("Map entry is missing ':'")
            value_schema, value = self.value(depth + 1)
            keys.add(key_schema)
            values.add(value_schema)
            entries.append((key, value))
            if not self._take(",") and not self._text.startswith("}", self.position):
                raise DataException("Map entries missing ',' delimiter")
        # Without a schema of the keys Kafka forgets that of the values, too.
        value_schema = values.schema if keys.schema is not None else None
        schema = Schema(Type.MAP, key_schema=keys.schema, value_schema=value_schema)
        return SchemaAndValue(
            schema, {keys.aligned(key): values.aligned(value) for key, value in entries}
        )


class _CommonSchema:
    """The schema that all of several values have, numbers the widest of theirs."""

    def __init__(self) -> None:
        self.schema: Schema | None = None
        self._compatible = True

    def add(self, schema: Schema | None) -> None:
        if schema is None or not self._compatible:
            return
        if self.schema is None or self.schema.type is schema.type:
            self.schema = schema
            return
        widths = _WIDTHS.get(self.schema.type), _WIDTHS.get(schema.type)
        if widths[0] is None or widths[1] is None:
            self.schema = None
            self._compatible = False
        elif widths[1] > widths[0]:
            self.schema = schema

    def aligned(self, value: Any) -> Any:
        """Return the value as one of the common schema; DataException for null, which is none."""
        schema = self.schema
        if schema is not None and value is None:
            raise DataException("Unable to convert a null value to a schema that requires a value")
        if schema is not None and schema.type in (Type.FLOAT32, Type.FLOAT64):
            return float(value) if isinstance(value, int) else value
        return value
