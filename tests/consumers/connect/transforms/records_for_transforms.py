"""Records and transforms for tests."""

from __future__ import annotations

from typing import Any

from consumers.connect.data.records import Header, SinkRecord
from consumers.connect.data.schemas import Schema
from consumers.connect.data.structs import Struct
from consumers.connect.transforms.by_name import TRANSFORMS
from consumers.connect.transforms.transform import Transform


def make(name: str, **properties: Any) -> Transform:
    """Return a transform, that of values if the name does not say so.

    `_` in names of properties stands for a dot.
    """
    sided = TRANSFORMS.get(name) or TRANSFORMS[f"{name}$Value"]
    return sided.make({key.replace("_", "."): text for key, text in properties.items()})


def record(
    value: Any = None,
    schema: Schema | None = None,
    *,
    key: Any = None,
    key_schema: Schema | None = None,
    topic: str = "topic",
    timestamp: int | None = 1_700_000_000_123,
    headers: tuple[Header, ...] = (),
) -> SinkRecord:
    """Return a record of a sink connector."""
    return SinkRecord(
        topic=topic,
        partition=3,
        key=key,
        key_schema=key_schema,
        value=value,
        value_schema=schema,
        timestamp=timestamp,
        headers=headers,
        offset=42,
        original_topic=topic,
        original_partition=3,
        original_offset=42,
    )


def applied(transform: Transform, given: SinkRecord) -> SinkRecord:
    """Return the record behind the transform, which keeps it."""
    found = transform.apply(given)
    assert found is not None
    return found


def fields(struct: Any) -> dict[str, Any]:
    """Return the fields of a struct by name."""
    assert isinstance(struct, Struct)
    names = [field.name for field in struct.schema.fields]
    return dict(zip(names, struct.values, strict=True))
