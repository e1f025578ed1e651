"""The name of a table, with its schema or without."""

from __future__ import annotations

from typing import Final, NamedTuple

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


#: Columns that each table has without being asked; none of one's own may be called so.
#: Source: PostgreSQL's documentation, "System Columns".
_SYSTEM_COLUMNS: Final = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})


def is_possible_column(name: str) -> bool:
    """Tell whether a column can be called this."""
    return is_possible_name(name) and name not in _SYSTEM_COLUMNS


def is_possible_name(name: str) -> bool:
    """Tell whether a part of a table's name can be this."""
    return (
        bool(name) and "\0" not in name and len(name.encode("utf-8", "replace")) <= (NAME_BYTES_MAX)
    )
