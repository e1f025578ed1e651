"""Values of Connect as JSON: structs are objects, logical types texts, bytes Base64."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.structs import Struct


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON, without its schema; raises DataException.

    A float that JSON does not have (NaN, infinity) is null.
    """
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataException(f"there is no JSON of it: {type(error).__name__}") from error


def message_bytes(value: Any) -> bytes:
    """Return a value as another system is sent it: bytes and texts as they are, others as JSON.

    Raises DataException.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    return json_bytes(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        names = (field.name for field in value.schema.fields)
        return dict(zip(names, value.values_with_defaults(), strict=True))
    raise TypeError(type(value).__name__)


_encoder: Final = msgspec.json.Encoder(decimal_format="number", enc_hook=_plain)
