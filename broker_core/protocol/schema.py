"""Message schemas as tables: the format of `definitions/`, and its compilation to codec plans.

A schema is an indented table with one field per line, in the order on the wire:

    name type versions [nullable VERSIONS] [tag N] [default VALUE]

`type` is a primitive (`int32`, `string`, `records`, ...), an array of one (`[]int32`), an array of
structs (`[]`, its fields indented below) or one struct (`{}`). `versions` is `3+`, `0-12` or `5`.
Names and version ranges are those of Kafka's message definitions (clients/.../common/message).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from broker_core.protocol.plan import FieldPlan, Plan

#: The end of an open version range, larger than any version of Kafka.
_NO_END = 32767

_INDENT = 4

_INTEGERS = frozenset({"int8", "int16", "uint16", "int32", "uint32", "int64"})
_ZEROES: dict[str, Any] = dict.fromkeys(_INTEGERS, 0) | {
    "bool": False,
    "float64": 0.0,
    "uuid": bytes(16),
    "string": "",
    "bytes": b"",
    "records": b"",
}


class SchemaError(ValueError):
    """A definition in this package is malformed; found when it is first used."""


class VersionRange(NamedTuple):
    """The versions from `low` to `high`, both included."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Parse `3+`, `0-12` or `5`."""
        if text.endswith("+"):
            return cls(int(text[:-1]), _NO_END)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high


_NEVER = VersionRange(1, 0)


@dataclass
class Field:
    """One line of a schema table."""

    name: str
    type: str
    versions: VersionRange
    nullable: VersionRange = _NEVER
    tag: int | None = None
    default: Any = None
    #: True if the table names the default.
    has_default: bool = False
    fields: list[Field] = field(default_factory=list)

    @property
    def is_array(self) -> bool:
        """Tell whether the value is a list."""
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        """The name of the primitive type, or "" for a struct."""
        return self.type.removeprefix("[]").removeprefix("{}")


def parse_fields(text: str) -> list[Field]:
    """Parse a schema table; raises SchemaError."""
    top: list[Field] = []
    open_at: list[list[Field]] = [top]
    for line in text.splitlines():
        if not line.strip():
            continue
        depth = (len(line) - len(line.lstrip())) // _INDENT - 1
        if not 0 <= depth < len(open_at):
            raise SchemaError(f"wrong indentation: {line!r}")
        del open_at[depth + 1 :]
        parsed = _parse_line(line.split())
        open_at[depth].append(parsed)
        open_at.append(parsed.fields)
    return top


def _parse_line(words: list[str]) -> Field:
    try:
        parsed = Field(words[0], words[1], VersionRange.parse(words[2]))
        attributes = dict(zip(words[3::2], words[4::2], strict=True))
        if "nullable" in attributes:
            parsed.nullable = VersionRange.parse(attributes.pop("nullable"))
        if "tag" in attributes:
            parsed.tag = int(attributes.pop("tag"))
        parsed.has_default = "default" in attributes
        parsed.default = _default(parsed, attributes.pop("default", None))
    except (ValueError, IndexError, KeyError) as error:
        raise SchemaError(f"{' '.join(words)!r}: {error}") from error
    if attributes:
        raise SchemaError(f"unknown attributes: {attributes}")
    return parsed


def _default(parsed: Field, text: str | None) -> Any:
    if text == "null" or parsed.type == "{}":
        return None
    if parsed.is_array:
        return ()
    if text is None:
        return _ZEROES[parsed.element]
    if parsed.element in _INTEGERS:
        return int(text, 0)
    if parsed.element == "bool":
        return text == "true"
    return text


def compile_plan(fields: list[Field], version: int, flexible: bool) -> Plan:
    """Compile the plan that the codec executes for one version of a message."""
    plain: list[FieldPlan] = []
    tagged: dict[int, FieldPlan] = {}
    absent: dict[str, Any] = {}
    for each in fields:
        if version not in each.versions or (each.tag is not None and not flexible):
            absent[each.name] = each.default
            continue
        struct = None if each.element else compile_plan(each.fields, version, flexible)
        compiled = FieldPlan(
            each.name,
            each.element or "struct",
            array=each.is_array,
            nullable=version in each.nullable,
            flexible=flexible,
            default=each.default,
            struct=struct,
        )
        if each.tag is None:
            plain.append(compiled)
        else:
            tagged[each.tag] = compiled
            absent[each.name] = each.default
    return Plan(plain, tagged, flexible, absent)


#: The types of an API's bodies, which `generate_bodies` makes of its tables.
RequestBody = TypeVar("RequestBody", bound=Mapping[str, object])
ResponseBody = TypeVar("ResponseBody", bound=Mapping[str, object])


@dataclass
class Api(Generic[RequestBody, ResponseBody]):
    """One kind of request and its response.

    `versions` are the first and the last version that this implementation supports;
    `flexible_from` is the first version with compact lengths and tagged fields (KIP-482).
    """

    key: int
    name: str
    versions: tuple[int, int]
    flexible_from: int | None
    request: str
    response: str

    def __post_init__(self) -> None:
        self._request_plans: dict[int, Plan] = {}
        self._response_plans: dict[int, Plan] = {}
        self._served_plans: dict[int, tuple[Plan, Plan]] = {}

    @cached_property
    def request_fields(self) -> list[Field]:
        """The fields of the request, of all versions."""
        return parse_fields(self.request)

    @cached_property
    def response_fields(self) -> list[Field]:
        """The fields of the answer, of all versions."""
        return parse_fields(self.response)

    def is_flexible(self, version: int) -> bool:
        """Tell whether the version has compact lengths and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from

    def serves(self, version: int) -> bool:
        """Tell whether a request of this version can be decoded and answered."""
        return self.versions[0] <= version <= self.versions[1]

    def served_plans(self, version: int) -> tuple[Plan, Plan] | None:
        """Return the plans of request and response, or None if the version is not served."""
        plans = self._served_plans.get(version)
        if plans is None and self.serves(version):
            plans = self.request_plan(version), self.response_plan(version)
            self._served_plans[version] = plans
        return plans

    def request_plan(self, version: int) -> Plan:
        """Return the codec plan of the request, compiled on first use."""
        plan = self._request_plans.get(version)
        if plan is None:
            plan = compile_plan(self.request_fields, version, self.is_flexible(version))
            self._request_plans[version] = plan
        return plan

    def response_plan(self, version: int) -> Plan:
        """Return the codec plan of the response, compiled on first use."""
        plan = self._response_plans.get(version)
        if plan is None:
            plan = compile_plan(self.response_fields, version, self.is_flexible(version))
            self._response_plans[version] = plan
        return plan


#: An API of which it is not known here which one it is.
AnyApi = Api[Any, Any]


@dataclass
class StoredMessage:
    """A key or value that is stored in a log record: an int16 version, then the fields."""

    name: str
    versions: tuple[int, int]
    flexible_from: int | None
    fields: str

    def __post_init__(self) -> None:
        self._plans: dict[int, Plan] = {}

    def plan(self, version: int) -> Plan:
        """Return the codec plan of one version."""
        plan = self._plans.get(version)
        if plan is None:
            flexible = self.flexible_from is not None and version >= self.flexible_from
            plan = compile_plan(parse_fields(self.fields), version, flexible)
            self._plans[version] = plan
        return plan
