"""Looks schemas up in a state, parses them with what they refer to, and compares them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.schema_registry.errors import (
    RegistryError,
    invalid_schema,
    invalid_version,
    subject_not_found,
    version_not_found,
)
from gateway.schema_registry.parsed import ParsedSchema, Referenced
from gateway.schema_registry.records import Reference, SchemaValue
from gateway.schema_registry.schema_types import incompatibilities, parse
from gateway.schema_registry.state import State
from waylog.bounded_cache import BoundedCache
from waylog.serialization.schema_types import AVRO

LEVELS: Final = (
    *("NONE", "BACKWARD", "FORWARD", "FULL"),
    *("BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"),
)
LATEST: Final = -1
_VERSION_MAX: Final = 2**31 - 1
_REFERENCES_MAX: Final = 100
_PARSED_MAX: Final = 1_000


class SchemaRequest(msgspec.Struct):
    """The body of a request that has a schema."""

    schema: str
    schemaType: str | None = None  # noqa: N815 as Confluent's clients write it
    references: list[Reference] | None = None
    #: For registration in mode IMPORT; 0 and -1 stand for none.
    id: int | None = None
    version: int | None = None


class _ParseKey(msgspec.Struct, frozen=True):
    type: str
    text: str
    references: tuple[Reference, ...]
    referenced: tuple[Referenced, ...]
    normalize: bool


def _parse(key: _ParseKey) -> ParsedSchema:
    return parse(key.type, key.text, key.references, key.referenced, normalize=key.normalize)


class Schemas:
    """The schemas of a state."""

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self._parsed: Final = BoundedCache(_parse, _PARSED_MAX)
        #: By the GUIDs of texts as they are stored; as many as there are schemas.
        self._canonical: Final[dict[str, str]] = {}

    def parse(self, request: SchemaRequest, *, normalize: bool = False) -> ParsedSchema:
        """Return the schema of a request; raises RegistryError."""
        references = tuple(request.references or ())
        return self._parsed.get(
            _ParseKey(
                (request.schemaType or AVRO).upper(),
                request.schema,
                references,
                tuple(self._referenced(references, {})),
                normalize,
            )
        )

    def serialized(self, request: SchemaRequest) -> str:
        """Return a schema of Protobuf as base64 of its descriptor; raises RegistryError."""
        from gateway.schema_registry.protobuf_type import serialized

        referenced = self._referenced(request.references or (), {})
        return serialized(request.schema, referenced)

    def parse_value(self, value: SchemaValue) -> ParsedSchema:
        """Return the schema of a version; raises RegistryError if it cannot be read."""
        return self.parse(
            SchemaRequest(value.schema, value.schemaType, references=list(value.references))
        )

    def _referenced(
        self, references: Sequence[Reference], found: dict[str, str]
    ) -> list[Referenced]:
        for each in references:
            if each.name in found:
                continue
            if len(found) >= _REFERENCES_MAX:
                raise invalid_schema(f"more than {_REFERENCES_MAX} references")
            value = self.state.version(each.subject, self._number(each))
            if value is None or value.deleted:
                raise invalid_schema(
                    f'No schema reference found for subject "{each.subject}" and version '
                    f"{each.version}"
                )
            found[each.name] = ""  # for schemas that refer to each other
            self._referenced(value.references, found)
            del found[each.name]
            found[each.name] = value.schema
        return [Referenced(name, text) for name, text in found.items()]

    def _number(self, reference: Reference) -> int:
        if reference.version != LATEST:
            return reference.version
        versions = self.state.versions(reference.subject)
        return versions[-1].version if versions else 0

    def find(
        self, subject: str, parsed: ParsedSchema, *, deleted: bool = False
    ) -> SchemaValue | None:
        """Return the newest version of a subject that is a schema, None if there is none."""
        for value in reversed(self.state.versions(subject, deleted=deleted)):
            if self._is(value, parsed):
                return value
        return None

    def id_of(self, parsed: ParsedSchema) -> int | None:
        """Return the id that a schema has in any subject, None if it has none yet."""
        for value in self.state.all_versions():
            if self._is(value, parsed):
                return value.id
        return None

    def _is(self, value: SchemaValue, parsed: ParsedSchema) -> bool:
        # What was normalized has another order than a text of the same schema that was not.
        return parsed.guid in (value.guid, self._canonical_guid(value))

    def _canonical_guid(self, value: SchemaValue) -> str:
        """Return the GUID that a version would have here: other registries write other texts."""
        guid = value.guid
        if guid not in self._canonical:
            try:
                self._canonical[guid] = self.parse_value(value).guid
            except RegistryError:
                self._canonical[guid] = guid  # it is not read here
        return self._canonical[guid]

    def incompatible(
        self, subject: str, parsed: ParsedSchema, against: Sequence[SchemaValue] | None = None
    ) -> list[str]:
        """Return why a schema is incompatible by the subject's level, empty if it is not.

        `against` are the versions to compare with, None for those that the level says.
        """
        level = self.state.level_of(subject)
        versions = self.state.versions(subject) if against is None else against
        if level == "NONE" or not versions:
            return []
        if against is None and not level.endswith("_TRANSITIVE"):
            versions = versions[-1:]
        kind = level.removesuffix("_TRANSITIVE")
        for value in reversed(versions):
            earlier = self.parse_value(value)
            reasons = []
            if kind in ("BACKWARD", "FULL"):
                reasons += incompatibilities(parsed, earlier)
            if kind in ("FORWARD", "FULL"):
                reasons += incompatibilities(earlier, parsed)
            if reasons:
                return [
                    *dict.fromkeys(reasons),
                    f"{{oldSchemaVersion: {value.version}}}",
                    f"{{oldSchema: '{value.schema}'}}",
                    f"{{compatibility: '{level}'}}",
                ]
        return []

    def get(self, subject: str, version: str, *, deleted: bool = False) -> SchemaValue:
        """Return a version by its number or `latest`; raises RegistryError."""
        number = version_number(version)
        versions = self.state.versions(subject, deleted=deleted)
        if not versions:
            raise subject_not_found(subject)
        if number == LATEST:
            return versions[-1]
        for each in versions:
            if each.version == number:
                return each
        raise version_not_found(number)


def version_number(text: str) -> int:
    """Return a version's number, LATEST for `latest` and -1; raises RegistryError."""
    if text in ("latest", "-1"):
        return LATEST
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:11]) <= _VERSION_MAX:
        raise invalid_version(text[:100])
    return int(text)
