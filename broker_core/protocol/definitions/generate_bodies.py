"""Writes `bodies.py`: a type for each structure of each request and answer.

The tables of this folder say which fields there are; this makes TypedDicts of them, which mypy
checks and which nobody needs at run time. Run it after a change of a table:

    python -m broker_core.protocol.definitions.generate_bodies

- A request has to name the fields of its newest version that have no default. The decoder fills in
  those that the client's version lacks, so that a request that has been read has all of them.
- An answer may leave out any field: the codec then sends the default.
- A list is a `Sequence`: an array that a version lacks is decoded to ().
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from broker_core.protocol.definitions import APIS, CONTROLLER_APIS
from broker_core.protocol.schema import AnyApi, Field

PATH: Final = Path(__file__).with_name("bodies.py")

_HEADER: Final = '''"""Types of the bodies of requests and answers, for annotations only.

Generated from the tables of this folder by

    python -m broker_core.protocol.definitions.generate_bodies

which says what the types promise. Import it under TYPE_CHECKING: it costs time and memory to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from broker_core.protocol.parts import Part
'''

_TYPES: Final = dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64"), "int") | {
    "bool": "bool",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
}
#: Records of a request are read from the connection; those of an answer may be sent from a file.
_RECORDS: Final = {"Request": "memoryview", "Response": "Part"}
#: The structures of these lists would be called a response inside a response.
_SINGULARS: Final = {"responses": "result", "partition_responses": "partition"}


def generate(apis: Iterable[AnyApi]) -> str:
    """Return the module's text."""
    parts = [_HEADER]
    for api in apis:
        for direction, fields in (
            ("Request", api.request_fields),
            ("Response", api.response_fields),
        ):
            parts += _Message(api, direction).classes(fields)
    return "\n\n".join(parts)


def all_apis() -> list[AnyApi]:
    """Return all APIs in the order of their names."""
    return sorted((APIS | CONTROLLER_APIS).values(), key=lambda api: api.name)


class _Message:
    """The structures of one request or answer."""

    def __init__(self, api: AnyApi, direction: str) -> None:
        self._api = api
        self._direction = direction
        self._structures: dict[str, list[Field]] = {}

    def classes(self, fields: list[Field]) -> Iterator[str]:
        """Yield the texts of the classes, the whole body first."""
        name = self._api.name + self._direction
        return self._structure(name, name, fields)

    def _structure(self, name: str, path: str, fields: list[Field]) -> Iterator[str]:
        total = "" if self._direction == "Request" else ", total=False"
        lines = [f"class {name}(TypedDict{total}):"]
        inner: list[tuple[str, str, list[Field]]] = []
        for each in fields:
            struct = ""
            if not each.element:
                struct, inner_path = self._name(path, each)
                if struct not in self._structures:
                    self._structures[struct] = each.fields
                    inner.append((struct, inner_path, each.fields))
            lines.append(f"    {each.name}: {self._annotation(each, struct)}")
        if not fields:
            lines.append("    pass")
        yield "\n".join(lines) + "\n"
        for struct, inner_path, below in inner:
            yield from self._structure(struct, inner_path, below)

    def _name(self, path: str, each: Field) -> tuple[str, str]:
        """Return the name of a structure, and the longer name of which inner ones may be made."""
        own = _camel(_singular(each.name) if each.is_array else each.name)
        short, long = self._api.name + self._direction + own, path + own
        return (short if self._structures.get(short, each.fields) == each.fields else long), long

    def _annotation(self, each: Field, struct: str) -> str:
        kind = struct or ("" if each.element == "records" else _TYPES[each.element])
        kind = kind or _RECORDS[self._direction]
        if each.is_array:
            kind = f"Sequence[{kind}]"
        if self._may_be_none(each):
            kind = f"{kind} | None"
        if self._direction == "Request" and self._may_be_missing(each):
            kind = f"NotRequired[{kind}]"
        return kind

    def _may_be_none(self, each: Field) -> bool:
        first, last = self._api.versions
        if any(version in each.nullable for version in range(first, last + 1)):
            return True
        always = each.tag is None and first in each.versions and last in each.versions
        return each.default is None and not always

    def _may_be_missing(self, each: Field) -> bool:
        return (
            each.tag is not None or each.has_default or self._api.versions[1] not in each.versions
        )


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _singular(name: str) -> str:
    if name in _SINGULARS:
        return _SINGULARS[name]
    for ending, singular in (("ies", "y"), ("ches", "ch"), ("ss", "ss"), ("s", "")):
        if name.endswith(ending):
            return name.removesuffix(ending) + singular
    return name


def main() -> int:
    """Write the module; return the exit status."""
    PATH.write_text(generate(all_apis()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
