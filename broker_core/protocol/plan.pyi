from collections.abc import Mapping
from typing import Any

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
