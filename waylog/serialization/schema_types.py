"""The types of schemas, as registries name them."""

from __future__ import annotations

from typing import Final

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
