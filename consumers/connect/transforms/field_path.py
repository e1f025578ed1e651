"""Paths to fields within fields (KIP-821): a.b, or `a.b`.c where a name has a dot."""

from __future__ import annotations

from typing import Any, Final

from consumers.connect.configuration.definitions import ConfigKey, ConfigType, Importance
from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.configuration.validators import one_of_ignoring_case
from consumers.connect.data.schemas import Field, Schema
from consumers.connect.data.structs import Struct
from consumers.connect.transforms.transform import require_map, require_struct

FIELD_SYNTAX_VERSION: Final = ConfigKey(
    name="field.syntax.version",
    type=ConfigType.STRING,
    default="V1",
    validator=one_of_ignoring_case("V1", "V2"),
    importance=Importance.HIGH,
    documentation="V1: a name is one of a field, dots and all. V2: dots lead to fields within "
    "fields; backticks are put around names that have dots.",
)
_PURPOSE: Final = "nested field access"


class FieldPath:
    """The steps to a field."""

    __slots__ = ("_last", "_parents")

    def __init__(self, path: str, version: str) -> None:
        """Raises ConfigException for a backtick without its end."""
        steps = [path] if version.upper() == "V1" else _steps(path)
        self._parents: Final = steps[:-1]
        self._last: Final = steps[-1]

    def field_of(self, schema: Schema) -> Field | None:
        """Return the field, None if there is none; DataException if a parent is no struct."""
        current = schema
        for step in self._parents:
            field = current.field(step)
            if field is None:
                return None
            current = field.schema
        return current.field(self._last)

    def value_in_struct(self, struct: Struct, *, with_default: bool) -> Any:
        """Return the value, None if it or a parent is missing."""
        current = struct
        for step in self._parents:
            if step not in current.schema.fields_by_name:
                return None
            value = current.get(step)
            if value is None:
                return None
            current = require_struct(value, _PURPOSE)
        if self._last not in current.schema.fields_by_name:
            return None
        if with_default:
            return current.get(self._last)
        return current.get_without_default(self._last)

    def value_in_map(self, value: dict[str, Any]) -> Any:
        """Return the value, None if it or a parent is missing."""
        current = value
        for step in self._parents:
            below = current.get(step)
            if below is None:
                return None
            current = require_map(below, _PURPOSE)
        return current.get(self._last)


def _steps(path: str) -> list[str]:
    steps: list[str] = []
    position = 0
    while True:
        if path.startswith("`", position):
            step, position = _quoted(path, position)
        else:
            end = path.find(".", position)
            end = len(path) if end < 0 else end
            step, position = path[position:end], end
        steps.append(step)
        if position >= len(path):
            return steps
        position += 1  # the dot


def _quoted(path: str, start: int) -> tuple[str, int]:
    """Return a step in backticks and where it ends.

    It ends with a backtick before a dot or the end, unless a backslash precedes; other backticks
    belong to the name.
    """
    step = ""
    position = start + 1
    while True:
        end = path.find("`", position)
        if end < 0:
            break
        is_escaped = path[end - 1] == "\\" and end - 1 > start
        if end + 1 < len(path) and path[end + 1] != ".":
            step += path[position : end + 1]
        elif is_escaped:
            step += path[position : end - 1] + "`"
        else:
            return step + path[position:end], end + 1
        position = end + 1
    raise ConfigException(
        f"Incomplete backtick pair in path: [{path}], consider adding a backslash before backtick "
        f"at position {start} to escape it"
    )
