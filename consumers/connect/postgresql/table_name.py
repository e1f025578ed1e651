"""The name of a table, with its schema or without."""

from __future__ import annotations

from typing import NamedTuple

from psycopg.sql import Identifier

#: PostgreSQL cuts longer names off without an error (NAMEDATALEN - 1).
NAME_BYTES_MAX = 63


class TableName(NamedTuple):
    """A name of one part or two; psycopg quotes the identifier."""

    parts: tuple[str, ...]

    @property
    def identifier(self) -> Identifier:
        """The name for statements."""
        return Identifier(*self.parts)

    def __str__(self) -> str:
        return ".".join(self.parts)


def is_possible_name(name: str) -> bool:
    """Tell whether a column or a part of a table's name can be this."""
    return (
        bool(name) and "\0" not in name and len(name.encode("utf-8", "replace")) <= (NAME_BYTES_MAX)
    )
