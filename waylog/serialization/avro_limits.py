"""Which Avro schemas are read: those whose values are not much larger than their bytes.

Items of an array that take no bytes (null, a record of nulls) let four bytes stand for a billion
items; records within records within records double with each level. Whoever may register a schema
could stop all readers of a topic by one record. Real schemas are far from these limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from waylog.serialization.serializer import SerializationError

#: Bytes of a schema's text.
SCHEMA_BYTES_MAX: Final = 1024 * 1024
#: Levels of objects and arrays in a schema's text, and in values that contain their like.
NESTING_MAX: Final = 100
#: Values that one value may consist of before its arrays and maps are counted.
VALUES_MAX: Final = 10_000
#: Values that each byte of an array or map may stand for.
VALUES_OF_BYTE_MAX: Final = 64

_BYTES_MIN: Final = {
    **{"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8},
    **{"bytes": 1, "string": 1},
}


class Extent(NamedTuple):
    """What a value of a schema takes at least, and whether it may contain its like."""

    bytes_min: int
    values: int  # without what arrays and maps contain
    recursive: bool


def check_size(text: str | bytes) -> None:
    """Raise SerializationError for a text with more bytes than a schema may have."""
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if len(data) > SCHEMA_BYTES_MAX:
        raise SerializationError(f"the schema is longer than {SCHEMA_BYTES_MAX} bytes")


def check_nesting(json: Any, what: str = "the schema") -> None:
    """Raise SerializationError for JSON with more levels than a schema, or a value, may have."""
    level, below = [json], 0
    while level:
        if below > NESTING_MAX:
            raise SerializationError(f"{what} has more than {NESTING_MAX} levels")
        level = [each for item in level for each in _parts(item)]
        below += 1


def _parts(json: Any) -> Iterator[Any]:
    if isinstance(json, dict):
        yield from json.values()
    elif isinstance(json, (list, tuple)):
        yield from json


def extent_of(schema: Any, named: Mapping[str, Any]) -> Extent:
    """Return the extent of a schema as fastavro has parsed it, with all its named types.

    Raises SerializationError for one that is not read.
    """
    # What a type takes that contains itself is a lower bound at first.
    first = _Measure(named, {}, checking=False)
    first.extent(schema)
    return _Measure(named, first.known, checking=True).extent(schema)


class _Measure:
    """One pass over a schema; each named type is looked at once."""

    def __init__(
        self, named: Mapping[str, Any], assumed: Mapping[str, Extent], *, checking: bool
    ) -> None:
        """`assumed` are the extents of types that contain themselves, inside of themselves."""
        self._named: Final = named
        self._assumed: Final = assumed
        self._checking: Final = checking
        self.known: Final[dict[str, Extent]] = {}
        self._open: Final[set[str]] = set()

    def extent(self, schema: Any) -> Extent:
        if isinstance(schema, list):
            branches = [self.extent(each) for each in schema]
            return Extent(
                1 + min((each.bytes_min for each in branches), default=0),
                1 + max((each.values for each in branches), default=0),
                any(each.recursive for each in branches),
            )
        kind = schema["type"] if isinstance(schema, Mapping) else schema
        if isinstance(kind, (list, Mapping)):
            return self.extent(kind)
        if kind in _BYTES_MIN:
            return Extent(_BYTES_MIN[kind], 1, recursive=False)
        if kind in ("array", "map"):
            return self._collection(kind, schema)
        return self._of_named(schema["name"] if isinstance(schema, Mapping) else kind)

    def _collection(self, kind: str, schema: Mapping[str, Any]) -> Extent:
        items = self.extent(schema["items" if kind == "array" else "values"])
        # Each entry of a map has a key of at least a byte, its length.
        each_bytes = items.bytes_min + (kind == "map")
        if self._checking and items.values > VALUES_OF_BYTE_MAX * each_bytes:
            raise SerializationError(
                f"the schema is not read: a part of an {kind} that takes {each_bytes} bytes would "
                f"be {items.values} values"
            )
        return Extent(1, 1, items.recursive)

    def _of_named(self, name: str) -> Extent:
        if name in self._open:
            assumed = self._assumed.get(name, Extent(0, 1, recursive=True))
            return assumed._replace(recursive=True)
        if name not in self.known:
            self._open.add(name)
            found = self._defined(self._named[name])
            self._open.discard(name)
            if self._checking and found.values > VALUES_MAX:
                raise SerializationError(
                    f"the schema is not read: each {name} would be more than {VALUES_MAX} values"
                )
            self.known[name] = found
        return self.known[name]

    def _defined(self, definition: Mapping[str, Any]) -> Extent:
        kind = definition["type"]
        if kind == "fixed":
            return Extent(definition["size"], 1, recursive=False)
        if kind == "enum":
            return Extent(1, 1, recursive=False)
        fields = [self.extent(field["type"]) for field in definition["fields"]]
        return Extent(
            sum(each.bytes_min for each in fields),
            1 + sum(each.values for each in fields),
            any(each.recursive for each in fields),
        )
