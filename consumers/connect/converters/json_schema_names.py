"""Names by which Confluent's JsonSchemaConverter marks what JSON Schema has no word for."""

from __future__ import annotations

from typing import Final

NAMESPACE: Final = "io.confluent.connect.json"
#: Attributes of a JSON Schema.
TYPE: Final = "connect.type"
VERSION: Final = "connect.version"
PARAMETERS: Final = "connect.parameters"
INDEX: Final = "connect.index"
#: A parameter of the Connect schema of an enum, which has no name in JSON Schema.
ENUM: Final = f"{NAMESPACE}.Enum"
#: The name of a struct that stands for alternatives, and the beginning of its fields' names.
ONE_OF: Final = f"{NAMESPACE}.OneOf"
FIELD: Final = f"{ONE_OF}.field."
#: What `connect.type` calls a map.
MAP: Final = "map"
