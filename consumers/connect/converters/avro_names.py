"""Names by which Confluent's AvroConverter marks what Avro has no word for."""

from __future__ import annotations

from typing import Final

NAMESPACE: Final = "io.confluent.connect.avro"
#: Of a struct without a name.
DEFAULT_RECORD: Final = f"{NAMESPACE}.ConnectDefault"
#: Of an entry of a map whose keys are no texts.
MAP_ENTRY: Final = f"{NAMESPACE}.MapEntry"
#: Of a struct that stands for a union of Avro, and of the parameter of an enum.
UNION: Final = f"{NAMESPACE}.Union"
ENUM: Final = f"{NAMESPACE}.Enum"
#: Attributes of an Avro schema.
NAME: Final = "connect.name"
VERSION: Final = "connect.version"
DOC: Final = "connect.doc"
DEFAULT: Final = "connect.default"
PARAMETERS: Final = "connect.parameters"
TYPE: Final = "connect.type"
#: A decimal's digits, which Connect has no word for either.
PRECISION: Final = "connect.decimal.precision"
PRECISION_DEFAULT: Final = 64
