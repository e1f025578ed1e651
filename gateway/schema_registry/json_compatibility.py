"""Whether a JSON Schema accepts all that another one accepts, as Confluent's registry asks.

The comparison is by keywords, not by all values that there are: where it cannot see that everything
is accepted it says what differs. The names of differences are Confluent's:
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/serdes-json.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import re2

from gateway.schema_registry.errors import invalid_schema
from gateway.schema_registry.parsed import difference
from waylog.serialization.json_document import JsonDocument
from waylog.serialization.serializer import SerializationError

#: Pairs of schemas that one comparison looks at: alternatives of alternatives are many.
_COMPARED_MAX: Final = 20_000
#: Bytes of schemas in these pairs, both of each: a large one may come in many pairs.
_COMPARED_BYTES_MAX: Final = 256 * 1024 * 1024
_PATTERN_MAX: Final = 1_000

_encode: Final = msgspec.json.Encoder(order="sorted").encode
#: Keywords with a number that a reader may have larger, and those that it may have smaller.
_UPPER: Final = {
    "maxLength": "MAX_LENGTH", "maximum": "MAXIMUM", "exclusiveMaximum": "EXCLUSIVE_MAXIMUM",
    "maxItems": "MAX_ITEMS", "maxProperties": "MAX_PROPERTIES",
}  # fmt: skip
_LOWER: Final = {
    "minLength": "MIN_LENGTH", "minimum": "MINIMUM", "exclusiveMinimum": "EXCLUSIVE_MINIMUM",
    "minItems": "MIN_ITEMS", "minProperties": "MIN_PROPERTIES",
}  # fmt: skip
_TYPES: Final = frozenset(("null", "boolean", "object", "array", "number", "integer", "string"))


def json_incompatibilities(reader: JsonDocument, writer: JsonDocument) -> list[str]:
    """Return why a reader does not accept all that a writer's schema accepts.

    Raises RegistryError for what takes too long, and for a `$ref` that leads nowhere.
    """
    comparison = _Comparison(reader, writer)
    try:
        found = comparison.differences(reader.json, writer.json, reader.json, writer.json, "#")
    except SerializationError as error:
        raise invalid_schema(str(error)) from error
    return list(dict.fromkeys(found))


class _Comparison:
    def __init__(self, reader: JsonDocument, writer: JsonDocument) -> None:
        self.reader: Final = reader
        self.writer: Final = writer
        self._open: Final[set[tuple[bytes, bytes]]] = set()
        self._compared = 0
        self._compared_bytes = 0

    def differences(
        self, reader: Any, writer: Any, reader_root: Any, writer_root: Any, path: str
    ) -> list[str]:
        """Return why the reader is narrower, nothing if it is not."""
        self._compared += 1
        if self._compared > _COMPARED_MAX:
            raise invalid_schema("it has too many alternatives to be compared")
        reader, reader_root = self.reader.resolved(reader, reader_root)
        writer, writer_root = self.writer.resolved(writer, writer_root)
        if _accepts_all(reader) or _accepts_none(writer):
            return []
        if _accepts_none(reader):
            return [difference("TYPE_NARROWED", f"the reader accepts nothing at {path}")]
        pair = _encode(reader), _encode(writer)
        self._compared_bytes += len(pair[0]) + len(pair[1])
        if self._compared_bytes > _COMPARED_BYTES_MAX:
            raise invalid_schema("it is too large for its number of alternatives to be compared")
        if pair in self._open:
            return []  # schemas that contain themselves: what is compared further up decides
        self._open.add(pair)
        try:
            if pair[0] == pair[1] and reader_root is writer_root:
                return []
            writer = {} if writer is True else writer
            return list(_Pair(self, reader, writer, reader_root, writer_root, path).differences())
        finally:
            self._open.discard(pair)


def _accepts_all(schema: Any) -> bool:
    return schema is True or (isinstance(schema, dict) and not (schema.keys() & _MEANINGFUL))


def _accepts_none(schema: Any) -> bool:
    return schema is False or (isinstance(schema, dict) and schema.get("not") in ({}, True))


_MEANINGFUL: Final = frozenset(
    (
        *_UPPER, *_LOWER,
        *("type", "enum", "const", "pattern", "multipleOf", "required", "properties"),
        *("patternProperties", "additionalProperties", "propertyNames", "dependencies"),
        *("dependentRequired", "dependentSchemas", "items", "prefixItems", "additionalItems"),
        *("contains", "uniqueItems", "allOf", "anyOf", "oneOf", "not", "if", "$ref"),
    )
)  # fmt: skip


class _Pair:
    """Two schemas without $ref, neither of which is true or false."""

    def __init__(
        self,
        comparison: _Comparison,
        reader: Mapping[str, Any],
        writer: Mapping[str, Any],
        reader_root: Any,
        writer_root: Any,
        path: str,
    ) -> None:
        self._comparison: Final = comparison
        self._reader: Final = reader
        self._writer: Final = writer
        self._roots: Final = (reader_root, writer_root)
        self._path: Final = path

    def _say(self, kind: str, what: str) -> str:
        return difference(kind, f"{what} at {self._path}")

    def _below(self, reader: Any, writer: Any, place: str) -> list[str]:
        return self._comparison.differences(
            reader, writer, *self._roots, f"{self._path}/{place.replace('/', '~1')}"
        )

    def differences(self) -> Iterator[str]:
        combined = self._combined()
        if combined is not None:
            yield from combined
            return
        yield from self._types()
        yield from self._values()
        yield from self._numbers()
        yield from self._objects()
        yield from self._arrays()
        yield from self._not()

    # ---- alternatives ----

    def _combined(self) -> list[str] | None:
        """Return the differences of combined schemas, None if neither is one."""
        own, other = _sum_of(self._reader), _sum_of(self._writer)
        if other is not None:
            # Whatever the writer chooses has to be accepted.
            kind = "SUM_TYPE_NARROWED" if own is not None else "COMBINED_TYPE_CHANGED"
            return [
                self._say(kind, f"the reader does not accept alternative {index} of the writer")
                for index, each in enumerate(other)
                if self._below(self._reader, _with(self._writer, each), f"alternative/{index}")
            ]
        if own is not None:
            is_accepted = any(
                not self._below(_with(self._reader, each), self._writer, f"alternative/{index}")
                for index, each in enumerate(own)
            )
            reason = self._say("SUM_TYPE_NARROWED", "no alternative of the reader accepts all")
            return [] if is_accepted else [reason]
        if "allOf" in self._reader:
            return [
                self._say(
                    "PRODUCT_TYPE_EXTENDED", f"part {index} of the reader's allOf is narrower"
                )
                for index, each in enumerate(_parts_of(self._reader))
                if self._below(each, self._writer, f"allOf/{index}")
            ]
        if "allOf" in self._writer:
            parts = _parts_of(self._writer)
            if not all(self._below(self._reader, each, "allOf") for each in parts):
                return []  # one of the parts alone lets through nothing that the reader refuses
            return self._below(self._reader, _merged(parts), "allOf")
        return None

    def _not(self) -> Iterator[str]:
        if "not" not in self._reader:
            return
        if "not" not in self._writer:
            yield self._say("NOT_TYPE_EXTENDED", "the reader excludes what the writer may write")
            return
        # What the reader excludes the writer has to exclude too.
        swapped = _Comparison(self._comparison.writer, self._comparison.reader)
        if swapped.differences(
            self._writer["not"], self._reader["not"], self._roots[1], self._roots[0], self._path
        ):
            yield self._say("NOT_TYPE_EXTENDED", "the reader excludes more than the writer")

    # ---- values ----

    def _types(self) -> Iterator[str]:
        own, other = _types_of(self._reader), _types_of(self._writer)
        if "integer" in other and "number" in own:
            other = other - {"integer"}
        lacking = sorted(other - own)
        if lacking:
            kind = "TYPE_NARROWED" if own & other else "TYPE_CHANGED"
            yield self._say(kind, f"the reader does not accept {', '.join(lacking)}")

    def _values(self) -> Iterator[str]:
        own, other = _enum_of(self._reader), _enum_of(self._writer)
        if own is not None and (other is None or not other <= own):
            kind = "ENUM_ARRAY_CHANGED" if other is None else "ENUM_ARRAY_NARROWED"
            yield self._say(kind, "the reader lacks values of the writer's enum")
        if "pattern" in self._reader and self._reader["pattern"] != self._writer.get("pattern"):
            kind = "PATTERN_CHANGED" if "pattern" in self._writer else "PATTERN_ADDED"
            yield self._say(kind, "the pattern differs")

    def _numbers(self) -> Iterator[str]:
        for names, sign in ((_UPPER, 1), (_LOWER, -1)):
            for name, kind in names.items():
                own, other = _number(self._reader, name), _number(self._writer, name)
                if own is None or (sign < 0 and own <= 0 and name.startswith("min") and
                                   name != "minimum"):  # fmt: skip
                    continue
                if other is None:
                    yield self._say(f"{kind}_ADDED", f"the reader has {name}, the writer has not")
                elif sign * own < sign * other:
                    word = "DECREASED" if sign > 0 else "INCREASED"
                    yield self._say(f"{kind}_{word}", f"{name} is narrower")
        own, other = _number(self._reader, "multipleOf"), _number(self._writer, "multipleOf")
        if own:
            if other is None:
                yield self._say("MULTIPLE_OF_ADDED", "the reader has multipleOf")
            elif other % own:
                yield self._say("MULTIPLE_OF_CHANGED", "multipleOf differs")

    # ---- objects ----

    def _objects(self) -> Iterator[str]:
        own, other = _object(self._reader, "properties"), _object(self._writer, "properties")
        if "object" in _types_of(self._writer):
            yield from self._required(own)
        rest = self._reader.get("additionalProperties", True)
        for name in {**own, **other}:
            if name in own and name in other:
                yield from self._below(own[name], other[name], f"properties/{name}")
            elif name in other:
                yield from self._removed(name, other[name], rest)
            else:
                yield from self._added(name, own[name])
        others_rest = self._writer.get("additionalProperties", True)
        if self._comparison.differences(rest, others_rest, *self._roots, self._path):
            kind = "ADDITIONAL_PROPERTIES_REMOVED" if rest is False else (
                "ADDITIONAL_PROPERTIES_NARROWED"
            )  # fmt: skip
            yield self._say(kind, "the reader accepts fewer other properties")
        for pattern, schema in _object(self._reader, "patternProperties").items():
            of_writer = _object(self._writer, "patternProperties").get(pattern, others_rest)
            yield from self._below(schema, of_writer, f"patternProperties/{pattern}")
        if "propertyNames" in self._reader:
            yield from self._below(
                self._reader["propertyNames"], self._writer.get("propertyNames", True),
                "propertyNames",
            )  # fmt: skip
        for word in ("dependencies", "dependentRequired", "dependentSchemas"):
            yield from self._dependencies(word)

    def _required(self, properties: Mapping[str, Any]) -> Iterator[str]:
        former = set(_names(self._writer.get("required")))
        for name in _names(self._reader.get("required")):
            schema = properties.get(name)
            has_default = isinstance(schema, dict) and "default" in schema
            if name not in former and not has_default:
                is_new = name not in _object(self._writer, "properties")
                kind = (
                    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
                    if is_new
                    else "REQUIRED_ATTRIBUTE_ADDED"
                )
                yield self._say(kind, f"the reader needs {name}, which the writer may leave out")

    def _removed(self, name: str, schema: Any, rest: Any) -> Iterator[str]:
        """Compare a property that the reader does not name."""
        covering = self._covering(self._reader, name, rest)
        if not self._below(covering, schema, f"properties/{name}"):
            return
        kind = (
            "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
            if covering is False
            else "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        )
        yield self._say(kind, f"the reader does not accept property {name}")

    def _added(self, name: str, schema: Any) -> Iterator[str]:
        """Compare a property that the writer does not name: it may have written it otherwise."""
        rest = self._writer.get("additionalProperties", True)
        covering = self._covering(self._writer, name, rest)
        if not self._below(schema, covering, f"properties/{name}"):
            return
        kind = (
            "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
            if covering is True or covering == {}
            else "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        )
        yield self._say(kind, f"what the writer has as {name} may be anything")

    @staticmethod
    def _covering(schema: Mapping[str, Any], name: str, rest: Any) -> Any:
        """Return the schema that applies to a property without one of its own."""
        for pattern, each in _object(schema, "patternProperties").items():
            if _matches(pattern, name):
                return each
        return rest

    def _dependencies(self, word: str) -> Iterator[str]:
        own, other = _object(self._reader, word), _object(self._writer, word)
        for name, needed in own.items():
            former = other.get(name)
            if isinstance(needed, list):
                if not set(_names(needed)) <= set(_names(former)):
                    kind = "ADDED" if former is None else "EXTENDED"
                    yield self._say(f"DEPENDENCY_ARRAY_{kind}", f"{name} needs more properties")
            elif former is None:
                if not _accepts_all(needed):
                    yield self._say("DEPENDENCY_SCHEMA_ADDED", f"{name} has a dependency")
            else:
                yield from self._below(needed, former, f"{word}/{name}")

    # ---- arrays ----

    def _arrays(self) -> Iterator[str]:
        own, own_rest = _items_of(self._reader)
        other, other_rest = _items_of(self._writer)
        for index in range(max(len(own), len(other))):
            reader = own[index] if index < len(own) else own_rest
            writer = other[index] if index < len(other) else other_rest
            found = self._below(reader, writer, f"items/{index}")
            if index < len(own) and index < len(other):
                yield from found
            elif found:
                kind = (
                    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"
                    if index < len(own)
                    else "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"
                )
                yield self._say(kind, f"item {index} is not accepted")
        found = self._below(own_rest, other_rest, "items")
        if not own and not other:
            yield from found
        elif found:
            yield self._say("ADDITIONAL_ITEMS_NARROWED", "the reader accepts fewer other items")
        if self._reader.get("uniqueItems") is True and self._writer.get("uniqueItems") is not True:
            yield self._say("UNIQUE_ITEMS_ADDED", "the reader wants items to differ")
        if "contains" in self._reader:
            if "contains" not in self._writer:
                yield self._say("CONTAINS_ADDED", "the reader wants some item")
            else:
                yield from self._below(self._reader["contains"], self._writer["contains"],
                                       "contains")  # fmt: skip


def _sum_of(schema: Mapping[str, Any]) -> list[Any] | None:
    for word in ("oneOf", "anyOf"):
        if isinstance(schema.get(word), list):
            return list(schema[word])
    return None


def _with(schema: Mapping[str, Any], alternative: Any) -> Any:
    """Return one alternative of a schema, with what the schema says beside it."""
    rest = _without(schema, "oneOf" if isinstance(schema.get("oneOf"), list) else "anyOf")
    if _accepts_all(rest):
        return alternative
    return {"allOf": [alternative, rest]}


def _without(schema: Mapping[str, Any], word: str) -> dict[str, Any]:
    return {name: each for name, each in schema.items() if name != word}


def _parts_of(schema: Mapping[str, Any]) -> list[Any]:
    return [*_list(schema["allOf"]), _without(schema, "allOf")]


def _merged(parts: Sequence[Any]) -> dict[str, Any]:
    """Return the parts of a writer's allOf as one schema, as far as keywords do not repeat."""
    merged: dict[str, Any] = {}
    for part in parts:
        for name, each in part.items() if isinstance(part, dict) else ():
            if name == "properties" and isinstance(merged.get(name), dict):
                merged[name] = {**merged[name], **(each if isinstance(each, dict) else {})}
            elif name == "required" and isinstance(merged.get(name), list):
                merged[name] = [*merged[name], *_names(each)]
            else:
                merged.setdefault(name, each)
    return merged


def _types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset((kind,))
    if isinstance(kind, list):
        return frozenset(each for each in kind if isinstance(each, str))
    values = _values_of(schema)
    if values is not None:
        return frozenset(_type_of(each) for each in values)
    return _TYPES


def _type_of(value: Any) -> str:
    for kind, name in (
        *((type(None), "null"), (bool, "boolean"), (int, "integer"), (float, "number")),
        *((str, "string"), (list, "array")),
    ):
        if isinstance(value, kind):
            return name
    return "object"


def _values_of(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _enum_of(schema: Mapping[str, Any]) -> frozenset[bytes] | None:
    values = _values_of(schema)
    return None if values is None else frozenset(_encode(each) for each in values)


def _number(schema: Mapping[str, Any], name: str) -> float | None:
    number = schema.get(name)
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    return number if is_number else None


def _object(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = schema.get(name)
    return found if isinstance(found, dict) else {}


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _names(found: Any) -> list[str]:
    return [each for each in _list(found) if isinstance(each, str)]


def _items_of(schema: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """Return the schemas of the first items, and that of all others."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    if isinstance(schema.get("prefixItems"), list):
        return list(schema["prefixItems"]), items
    return [], items


def _matches(pattern: str, name: str) -> bool:
    """Tell whether a name matches a pattern of somebody's, in linear time."""
    if len(pattern) > _PATTERN_MAX:
        return False
    try:
        return re2.search(pattern, name) is not None
    except re2.error:  # a look-ahead, for instance
        return False
