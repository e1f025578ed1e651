"""A schema in the form in which it is kept, whatever its type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gateway.schema_registry.records import Reference, guid_of


class Referenced(NamedTuple):
    """A schema that another one uses, under a name."""

    name: str
    text: str


class ParsedSchema(NamedTuple):
    """A schema; those with equal texts are the same schema."""

    type: str
    text: str
    references: tuple[Reference, ...]
    #: The schema as `compare` takes it.
    comparable: Any
    #: From what a reader and a writer are to why the reader cannot read what the writer may write.
    compare: Callable[[Any, Any], list[str]]

    @property
    def guid(self) -> str:
        """A name of the schema that depends on nothing but its content."""
        return guid_of(self.type, self.text, self.references)


def difference(kind: str, description: str) -> str:
    """Return a reason in the form in which Confluent's registry writes it."""
    return f"{{errorType:'{kind}', description:'{description}'}}"
