"""Which columns Waylog's own messages have, though each record names only what its device knew.

A record of topic `location`, `address` or `event` is JSON without a schema, in which a member that
is unknown is missing and 14.0 may be written as 14. Their members and types are those of
`waylog.messages`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec

from waylog.messages import Address, Event, Fix

_TYPES: Final[dict[type[msgspec.inspect.Type], str]] = {
    msgspec.inspect.StrType: "text",
    msgspec.inspect.FloatType: "double precision",
    msgspec.inspect.IntType: "bigint",
    msgspec.inspect.BoolType: "boolean",
    msgspec.inspect.DictType: "jsonb",
}


def _columns(message: Any) -> dict[str, str]:
    return {field.name: _type(field.type) for field in msgspec.structs.fields(message)}


def _type(annotation: Any) -> str:
    found = msgspec.inspect.type_info(annotation)
    options = found.types if isinstance(found, msgspec.inspect.UnionType) else (found,)
    return next(_TYPES[type(each)] for each in options if type(each) in _TYPES)


def _required(message: Any) -> frozenset[str]:
    return frozenset(field.name for field in msgspec.structs.fields(message) if field.required)


_MESSAGES: Final = tuple((_required(each), _columns(each)) for each in (Fix, Address, Event))


def known_columns(names: Collection[str]) -> dict[str, str]:
    """Return the columns, with their types, of the message that has these members; none if it is
    not one of Waylog's.
    """
    given = frozenset(names)
    return next((columns for required, columns in _MESSAGES if required <= given), {})
