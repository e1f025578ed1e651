from collections.abc import Iterable, Mapping
from typing import Any

class ProtocolError(ValueError): ...
class RemoteProtocolError(ProtocolError): ...
class LocalProtocolError(ProtocolError): ...

class FieldPlan:
    name: str
    kind: int
    array: bool
    nullable: bool
    value_nullable: bool
    flexible: bool
    default: Any
    struct: Plan | None
    size_min: int
    def __init__(
        self,
        name: str,
        kind: str,
        *,
        array: bool,
        nullable: bool,
        flexible: bool,
        default: Any,
        struct: Plan | None,
    ) -> None: ...

class Plan:
    fields: list[FieldPlan]
    tagged: dict[int, FieldPlan]
    tags: list[int]
    flexible: bool
    absent: Mapping[str, object]
    size_min: int
    def __init__(
        self,
        fields: list[FieldPlan],
        tagged: dict[int, FieldPlan],
        flexible: bool,
        absent: Mapping[str, object],
    ) -> None: ...

class Elements:
    def __init__(self, plan: Plan, name: str) -> None: ...
    def __len__(self) -> int: ...
    def extend(self, values: Iterable[Any]) -> None: ...

_Buffer = bytes | bytearray | memoryview

# What a body has in it only its caller knows: see `bodies.py`. Messages are always dicts.
def decode(plan: Plan, view: _Buffer, start: int = 0) -> tuple[Any, int]: ...
def decode_request_header(
    view: _Buffer, start: int = 0
) -> tuple[int, int, int, str | None, int]: ...
def skip_tagged_fields(view: _Buffer, start: int) -> int: ...
def encode(plan: Plan, message: Mapping[str, object]) -> bytes: ...
def encode_response_frame(
    plan: Plan, correlation_id: int, flexible_header: bool, message: Mapping[str, object]
) -> list[Any]: ...
