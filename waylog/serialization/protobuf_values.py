"""Values of Protobuf's JSON mapping as other formats take them: numbers and bytes are no texts."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

#: What the texts of these fields stand for.
_SCALARS: Final[Mapping[int, Callable[[str], Any]]] = {
    FieldDescriptor.TYPE_BYTES: base64.b64decode,
    **dict.fromkeys(
        (
            *(FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64),
            *(FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_FIXED64),
            FieldDescriptor.TYPE_SFIXED64,
        ),
        int,
    ),
    **dict.fromkeys((FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE), float),
}
#: Messages with a form of their own in JSON, and what texts of some of them stand for.
_KNOWN: Final = "google.protobuf."
_WRAPPERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "google.protobuf.BytesValue": base64.b64decode,
    "google.protobuf.Int64Value": int,
    "google.protobuf.UInt64Value": int,
    "google.protobuf.FloatValue": float,
    "google.protobuf.DoubleValue": float,
}


def native_value(value: Any, message: Descriptor) -> Any:
    """Return a message's JSON (json_format.MessageToDict, with fields' own names) so.

    64-bit integers are numbers, as are NaN and the infinities, bytes are bytes. Times, enums and
    the like stay texts.
    """
    convert = _WRAPPERS.get(message.full_name)
    if convert is not None:
        return convert(value) if isinstance(value, str) else value
    if message.full_name.startswith(_KNOWN) or not isinstance(value, dict):
        return value
    fields = message.fields_by_name
    return {
        name: _of_field(each, fields[name]) if name in fields else each
        for name, each in value.items()
    }


def _of_field(value: Any, field: FieldDescriptor) -> Any:
    if not field.is_repeated:
        return _of_one(value, field)
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        of_values = message.fields_by_name["value"]
        return {name: _of_one(each, of_values) for name, each in value.items()}
    return [_of_one(each, field) for each in value]


def _of_one(value: Any, field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        return native_value(value, field.message_type)
    convert = _SCALARS.get(field.type)
    return convert(value) if convert is not None and isinstance(value, str) else value
