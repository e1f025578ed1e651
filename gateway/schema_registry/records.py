"""Records of the topic `_schemas`, as Confluent's registry and Karapace write them.

Keys are compared byte by byte when the topic is compacted, so their members have a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

SCHEMAS_TOPIC: Final = "_schemas"
#: The number that stands for the newest version.
LATEST: Final = -1

Record = tuple[bytes, bytes | None]


class Reference(msgspec.Struct, frozen=True):
    """A schema that another one uses under a name."""

    name: str
    subject: str
    version: int


def guid_of(schema_type: str, text: str, references: Sequence[Reference]) -> str:
    """Return the GUID of a schema, as of UUID's version 3 made of all that it consists of."""
    content = msgspec.json.encode([schema_type, text, references])
    return str(UUID(bytes=md5(content, usedforsecurity=False).digest(), version=3))


class SchemaValue(msgspec.Struct, omit_defaults=True, frozen=True):
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: str
    schemaType: str = "AVRO"  # noqa: N815 as Confluent writes it
    references: tuple[Reference, ...] = ()
    deleted: bool = False

    @property
    def guid(self) -> str:
        """A name of the schema that depends on nothing but its content."""
        return guid_of(self.schemaType, self.schema, self.references)


class Key(msgspec.Struct, frozen=True):
    """Which record it is. `subject` is None for what is not about one subject."""

    keytype: str
    subject: str | None = None
    version: int | None = None


class _Config(msgspec.Struct):
    compatibilityLevel: str  # noqa: N815 see above


class _Mode(msgspec.Struct):
    mode: str


class _Deleted(msgspec.Struct):
    version: int


class SchemaRecord(NamedTuple):
    """A version; `value` None: it is deleted for ever."""

    subject: str
    version: int
    value: SchemaValue | None


class ConfigRecord(NamedTuple):
    """The compatibility level of a subject, or of all (None); None for none."""

    subject: str | None
    level: str | None


class ModeRecord(NamedTuple):
    """The mode of a subject, or of all (None); None for none."""

    subject: str | None
    mode: str | None


class DeletedSubject(NamedTuple):
    """All versions of a subject up to one are deleted; None: this is no longer said."""

    subject: str
    version: int | None


_encode: Final = msgspec.json.Encoder().encode
_key_decoder: Final = msgspec.json.Decoder(Key)


def schema_record(value: SchemaValue) -> Record:
    """Return the record of a version."""
    members: dict[str, Any] = {
        "subject": value.subject,
        "version": value.version,
        "id": value.id,
    }
    if value.schemaType != "AVRO":
        members["schemaType"] = value.schemaType
    if value.references:
        members["references"] = value.references
    members |= {"schema": value.schema, "deleted": value.deleted}
    return _schema_key(value.subject, value.version), _encode(members)


def no_schema_record(subject: str, version: int) -> Record:
    """Return the tombstone of a version."""
    return _schema_key(subject, version), None


def _schema_key(subject: str, version: int) -> bytes:
    return _encode({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def config_record(subject: str | None, level: str | None) -> Record:
    """Return the record of a compatibility level, a tombstone for None."""
    value = None if level is None else _encode({"subject": subject, "compatibilityLevel": level})
    return _key("CONFIG", subject), value


def mode_record(subject: str | None, mode: str | None) -> Record:
    """Return the record of a mode, a tombstone for None."""
    value = None if mode is None else _encode({"subject": subject, "mode": mode})
    return _key("MODE", subject), value


def deleted_subject_record(subject: str, version: int | None) -> Record:
    """Return the record of a deleted subject, a tombstone for None."""
    value = None if version is None else _encode({"subject": subject, "version": version})
    return _key("DELETE_SUBJECT", subject), value


def no_operation_record() -> Record:
    """Return a record that says nothing."""
    return _encode({"keytype": "NOOP", "magic": 0}), None


def _key(keytype: str, subject: str | None) -> bytes:
    return _encode({"keytype": keytype, "subject": subject, "magic": 0})


Read = SchemaRecord | ConfigRecord | ModeRecord | DeletedSubject


def read_record(key: bytes | None, value: bytes | None) -> Read | None:
    """Return what a record says, None for one that says nothing here.

    Raises what is in MALFORMED for a record of another form.
    """
    if not key:
        return None
    about = _key_decoder.decode(key)
    # Confluent writes tombstones of some kinds as the text null.
    data = None if value is None or value.strip() in (b"", b"null") else value
    if about.keytype == "SCHEMA":
        if about.subject is None or about.version is None:
            raise ValueError("a version without subject or number")
        version = None if data is None else msgspec.json.decode(data, type=SchemaValue)
        return SchemaRecord(about.subject, about.version, version)
    if about.keytype == "CONFIG":
        level = None if data is None else msgspec.json.decode(data, type=_Config).compatibilityLevel
        return ConfigRecord(about.subject, level)
    if about.keytype == "MODE":
        mode = None if data is None else msgspec.json.decode(data, type=_Mode).mode
        return ModeRecord(about.subject, mode)
    if about.keytype in ("DELETE_SUBJECT", "CLEAR_SUBJECT"):
        if about.subject is None:
            raise ValueError("a deleted subject without name")
        number = None if data is None else msgspec.json.decode(data, type=_Deleted).version
        return DeletedSubject(about.subject, number)
    return None
