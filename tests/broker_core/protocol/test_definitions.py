"""Every advertised API and version, compared with kio, whose code is generated from Kafka's own
message definitions: the bytes must be equal in both directions.
"""

from __future__ import annotations

import io
import random
import string
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from broker_core.protocol.decoder import decode
from broker_core.protocol.definitions import APIS, CONTROLLER_APIS
from broker_core.protocol.encoder import encode
from broker_core.protocol.plan import FieldPlan, Plan

_KINDS = [
    "bool",
    "int8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "float64",
    "uuid",
    "string",
    "bytes",
    "records",
    "struct",
]
_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16, "uint32": 32}
_ERROR_CODES = [int(code) for code in ErrorCode]

CASES = [
    pytest.param(key, version, direction, id=f"{api.name}-{version}-{direction}")
    for key, api in sorted((APIS | CONTROLLER_APIS).items())
    if key in api_key_map  # the others are not APIs of Kafka
    for version in range(api.versions[0], api.versions[1] + 1)
    for direction in ("request", "response")
]


class Generator:
    """Generates random messages for a plan."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def message(self, plan: Plan) -> dict[str, Any]:
        message = {field.name: self._field(field) for field in plan.fields}
        for field in plan.tagged.values():
            # Defaults of tagged fields are not on the wire; both sides leave them out.
            if self._random.random() < 0.5:
                message[field.name] = self._field(field)
        return message

    def _field(self, field: FieldPlan) -> Any:
        if field.nullable and self._random.random() < 0.3:
            return None
        if field.array:
            return [self._value(field) for _ in range(self._random.randrange(4))]
        return self._value(field)

    def _value(self, field: FieldPlan) -> Any:
        kind = _KINDS[field.kind]
        if kind == "struct":
            assert field.struct is not None
            return self.message(field.struct)
        if kind == "bool":
            return self._random.random() < 0.5
        if kind == "float64":
            return self._random.uniform(-1e9, 1e9)
        if kind == "string":
            return "".join(self._random.choices(string.printable + "äß→", k=5))
        if kind in {"bytes", "records"}:
            return self._random.randbytes(self._random.randrange(20))
        if kind == "uuid":
            return self._random.randbytes(16)
        if field.name.endswith("error_code"):
            return self._random.choice(_ERROR_CODES)
        if field.name.endswith(("_ms", "timestamp")):
            # kio converts these to durations and times, and refuses values outside of the calendar.
            return self._random.randrange(0, 2**31 - 1)
        if field.name in {"acks", "isolation_level", "resource_type", "config_source"}:
            return self._random.randrange(0, 2)
        return self._random.randrange(0, 2 ** _BITS[kind])


def _without_defaults(plan: Plan, message: dict[str, Any]) -> dict[str, Any]:
    """Return what the codec decodes: the fields of all versions, absent ones with defaults."""
    complete: dict[str, Any] = dict(plan.absent)
    for field in [*plan.fields, *plan.tagged.values()]:
        value = message.get(field.name, field.default)
        if field.struct is not None and value is not None:
            if field.array:
                value = [_without_defaults(field.struct, each) for each in value]
            else:
                value = _without_defaults(field.struct, value)
        if field.array and not value and field.name in plan.absent:
            value = plan.absent[field.name]
        complete[field.name] = value
    return complete


@pytest.mark.parametrize(("key", "version", "direction"), CASES)
def test_bytes_are_those_of_kio(key: int, version: int, direction: str) -> None:
    api = (APIS | CONTROLLER_APIS)[key]
    plan = api.request_plan(version) if direction == "request" else api.response_plan(version)
    paths = schema_name_map[api_key_map[key]].get(version)
    if paths is None:
        pytest.skip(f"kio does not know version {version} of {api.name} yet")
    path = paths[EntityType.request] if direction == "request" else paths[EntityType.response]
    module_name, _, class_name = path.partition(":")
    entity = getattr(__import__(module_name, fromlist=[class_name]), class_name)
    assert entity.__flexible__ == api.is_flexible(version)
    read, write = entity_reader(entity), entity_writer(entity)

    generator = Generator(f"{key}-{version}-{direction}")
    for _ in range(8):
        message = generator.message(plan)
        ours = encode(plan, message)

        theirs = io.BytesIO()
        parsed, consumed = read(ours, 0)
        assert consumed == len(ours)
        write(theirs, parsed)
        assert theirs.getvalue() == ours

        decoded, end = decode(plan, memoryview(ours))
        assert end == len(ours)
        assert decoded == _without_defaults(plan, message)
