"""Numbers that JSON has no digits for: NaN and the infinities are texts, as in Avro of Java."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

#: The numbers by their texts, which are also those of Protobuf and Kafka Connect.
NON_FINITE: Final[Mapping[str, float]] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}
_encoder: Final = msgspec.json.Encoder()


def non_finite_text(value: float) -> str:
    """Return the text of a number that is not finite."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def json_bytes(value: Any, encoder: msgspec.json.Encoder = _encoder) -> bytes:
    """Return a value as JSON; raises TypeError and what is in MALFORMED for what has none."""
    encoded = encoder.encode(value)
    if b"null" not in encoded:
        return encoded  # msgspec would have written null for a number that is not finite
    plain = msgspec.to_builtins(value, builtin_types=(Decimal,), str_keys=True)
    return encoder.encode(with_texts(plain))


def with_texts(value: Any) -> Any:
    """Return what JSON is made of with texts for numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else non_finite_text(value)
    if isinstance(value, dict):
        return {name: with_texts(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_texts(each) for each in value]
    return value
