"""A JSON Schema with those that it refers to: what its `$ref`s lead to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from waylog.serialization.serializer import SerializationError

_REFERENCES_MAX: Final = 100


class JsonDocument(NamedTuple):
    """A schema, and those that it refers to by name."""

    json: Any
    others: Mapping[str, Any]

    def resolved(self, schema: Any, root: Any = None) -> tuple[Any, Any]:
        """Return what a schema stands for, and the document in which that is.

        Raises SerializationError for a `$ref` that leads nowhere, or to itself.
        """
        root = self.json if root is None else root
        for _ in range(_REFERENCES_MAX):
            reference = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(reference, str):
                return schema, root
            place, _, pointer = reference.partition("#")
            if place:
                root = self.others.get(place)
                if root is None:
                    raise SerializationError(
                        f"$ref {reference[:100]} is no reference of the schema"
                    )
            schema = _pointed_to(root, pointer, reference)
        raise SerializationError("a $ref leads to itself")


def _pointed_to(root: Any, pointer: str, reference: str) -> Any:
    found = root
    for part in pointer.split("/")[1:]:
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdigit() and int(name[:9]) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            raise SerializationError(f"$ref {reference[:100]} leads nowhere")
    return found
