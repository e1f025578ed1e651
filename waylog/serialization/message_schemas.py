"""Avro schemas of the platform's messages, made from the classes of waylog/messages.py.

So a member that is added there is a field here, with a default as it has one there: schemas of
different ages can read each other's records. What JSON may hold anything in (`attributes`) is a
text of JSON in Avro.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from waylog.malformed import MALFORMED
from waylog.serialization.serializer import SerializationError

NAMESPACE: Final = "waylog"
_TIMES: Final = frozenset(("time", "received", "resolved"))
_TIMESTAMP: Final = {"type": "long", "logicalType": "timestamp-millis"}
_SCALARS: Final[dict[type, str]] = {
    **{str: "string", bytes: "bytes", bool: "boolean", int: "long", float: "double"},
}

Message = TypeVar("Message", bound=msgspec.Struct)


class MessageSchema(Generic[Message]):
    """The Avro schema of a class of messages, and its values in other formats."""

    def __init__(self, class_: type[Message]) -> None:
        """Raises TypeError for a member of a type that has no Avro."""
        self._class: Final = class_
        hints = get_type_hints(class_)
        #: The full name of the record, and of a message of Protobuf or a JSON Schema of the same.
        self.name: Final = f"{NAMESPACE}.{class_.__name__}"
        #: Members that are objects in JSON, and texts of JSON in Avro.
        self.json_members: Final = frozenset(
            name for name, hint in hints.items() if _is_any_json(_required(hint)[0])
        )
        self._fields: Final = [
            _field(each, hints[each.name]) for each in msgspec.structs.fields(class_)
        ]
        #: Members without which Protobuf has an empty map.
        self._optional_maps: Final = frozenset(
            name
            for name, hint in hints.items()
            if name not in self.json_members and _is_optional_map(hint)
        )
        #: The schema's JSON.
        self.text: Final = msgspec.json.encode(
            {
                "type": "record",
                "name": class_.__name__,
                "namespace": NAMESPACE,
                "fields": self._fields,
            }
        ).decode()

    def to_avro(self, message: Message) -> dict[str, Any]:
        """Return a message as the record that Avro writes."""
        members = msgspec.structs.asdict(message)
        for name in self.json_members:
            if members[name] is not None:
                members[name] = msgspec.json.encode(members[name]).decode()
        return members

    def from_json(self, value: Any) -> Message:
        """Return the message of decoded JSON; raises SerializationError."""
        try:
            return msgspec.convert(value, self._class)
        except (*MALFORMED, TypeError) as error:
            raise self._no_message(error) from error

    def from_protobuf(self, record: Any) -> Message:
        """Return the message of a record of Protobuf, whose fields are those of Avro.

        What a message lacks is an empty text or map where the schema does not say `optional`.
        Numbers and bytes are such (see RecordSchema.read_named). Raises SerializationError.
        """
        if not isinstance(record, dict):
            raise SerializationError(f"the value is no {self._class.__name__}")
        may_be_empty = self.json_members | self._optional_maps
        return self.from_avro(
            {name: each for name, each in record.items() if each or name not in may_be_empty}
        )

    def from_avro(self, record: Any) -> Message:
        """Return the message of a record that was read; raises SerializationError."""
        if not isinstance(record, dict):
            raise SerializationError(f"the value is no {self._class.__name__}")
        members = dict(record)
        try:
            for name in self.json_members & members.keys():
                if members[name] is not None:
                    members[name] = msgspec.json.decode(members[name])
            return msgspec.convert(members, self._class)
        except (*MALFORMED, TypeError) as error:
            raise self._no_message(error) from error

    def _no_message(self, error: Exception) -> SerializationError:
        return SerializationError(f"the value is no {self._class.__name__}: {error}")


def _field(member: msgspec.structs.FieldInfo, hint: Any) -> dict[str, Any]:
    kind, optional = _required(hint)
    schema = _schema(member.name, kind)
    field: dict[str, Any] = {"name": member.name, "type": ["null", schema] if optional else schema}
    if optional:
        field["default"] = None
    elif member.default is not msgspec.NODEFAULT:
        field["default"] = member.default
    return field


def _required(hint: Any) -> tuple[Any, bool]:
    """Return the type of a member, and whether it may be None."""
    if get_origin(hint) in (Union, UnionType):
        kinds = [each for each in get_args(hint) if each is not NoneType]
        if len(kinds) == 1:
            return kinds[0], True
    return hint, False


def _is_optional_map(hint: Any) -> bool:
    kind, optional = _required(hint)
    return optional and get_origin(kind) is dict


def _is_any_json(kind: Any) -> bool:
    return get_origin(kind) is dict and get_args(kind) == (str, Any)


def _schema(name: str, kind: Any) -> Any:
    if kind is int and name in _TIMES:
        return _TIMESTAMP
    if kind in _SCALARS:
        return _SCALARS[kind]
    if _is_any_json(kind):
        return "string"
    if get_origin(kind) is dict and get_args(kind) == (str, str):
        return {"type": "map", "values": "string"}
    raise TypeError(f"member {name} has a type without Avro: {kind}")
