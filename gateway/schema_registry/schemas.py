"""Looks schemas up in a state, parses them with what they refer to, and compares them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gateway.schema_registry.errors import (
    RegistryError,
    invalid_schema,
    invalid_version,
    subject_not_found,
    version_not_found,
)
from gateway.schema_registry.parsed import ParsedSchema, Referenced
from gateway.schema_registry.records import LATEST, Reference, SchemaValue
from gateway.schema_registry.schema_types import incompatibilities, parse
from gateway.schema_registry.state import State
from waylog.bounded_cache import BoundedCache
from waylog.serialization.schema_types import AVRO

LEVELS: Final = (
    *("NONE", "BACKWARD", "FORWARD", "FULL"),
    *("BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"),
)
_VERSION_MAX: Final = 2**31 - 1
_REFERENCES_MAX: Final = 100
_PARSED_MAX: Final = 1_000
_COMPARED_MAX: Final = 20_000
#: Seconds for the comparison with all versions of a subject.
_COMPARING_S: Final = 10.0


class SchemaRequest(msgspec.Struct):
    """The body of a request that has a schema."""

    schema: str
    schemaType: str | None = None  # noqa: N815 as Confluent's clients write it
    references: list[Reference] | None = None
    #: For registration in mode IMPORT; 0 and -1 stand for none.
    id: int | None = None
    version: int | None = None
    #: Not kept. Rules encrypt members, for instance: nobody may believe that they apply.
    metadata: Any = None
    ruleSet: Any = None  # noqa: N815 as above
    schemaTagsToAdd: Any = None  # noqa: N815 as above
    schemaTagsToRemove: Any = None  # noqa: N815 as above


class _ParseKey(msgspec.Struct, frozen=True):
    type: str
    text: str
    references: tuple[Reference, ...]
    referenced: tuple[Referenced, ...]
    normalize: bool


def _parse(key: _ParseKey) -> ParsedSchema:
    return parse(key.type, key.text, key.references, key.referenced, normalize=key.normalize)


class _Pair(NamedTuple):
    reader: _ParseKey
    writer: _ParseKey


class Schemas:
    """The schemas of a state.

    What takes long depends on texts alone and is kept: `preparation` does it beforehand.
    """

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self._parsed: Final = BoundedCache(_parse, _PARSED_MAX)
        self._compared: Final = BoundedCache(self._compare, _COMPARED_MAX)
        #: By the GUIDs of texts as they are stored; as many as there are schemas.
        self._canonical: Final[dict[str, str]] = {}

    def parse(self, request: SchemaRequest, *, normalize: bool = False) -> ParsedSchema:
        """Return the schema of a request; raises RegistryError."""
        return self._parsed.get(self._key(request, normalize=normalize))

    def _key(self, request: SchemaRequest, *, normalize: bool = False) -> _ParseKey:
        references = tuple(self._numbered(each) for each in request.references or ())
        return _ParseKey(
            (request.schemaType or AVRO).upper(),
            request.schema,
            references,
            tuple(self._referenced(references, {})),
            normalize,
        )

    def preparation(
        self,
        subject: str,
        request: SchemaRequest,
        against: Sequence[SchemaValue] | None = None,
        *,
        normalize: bool = False,
        registering: bool = False,
    ) -> Iterator[None]:
        """Return the steps of work that may take seconds, for another thread.

        After them a look-up, a registration, and a comparison with `against` are quick; without
        them they are as right. Both raise RegistryError. What they are taken from is that of the
        call.
        """
        key = self._key(request, normalize=normalize)
        values: Iterable[SchemaValue] = (
            self.state.all_versions()  # for the id that the schema has in another subject
            if registering
            else self.state.versions(subject, deleted=True)
        )
        unread = {
            value.guid: self._readable_key(value)
            for value in values
            if value.guid not in self._canonical
        }
        kept = {each.guid for each in self.state.versions(subject)}
        pairs = [
            pair
            for value in self._to_compare(subject, against)
            if (earlier := self._readable_key(value)) is not None
            for pair in self._pairs(subject, key, earlier)
        ]

        def steps() -> Iterator[None]:
            guid = self._parsed.get(key).guid
            yield
            for each, unread_key in unread.items():
                self._keep_canonical(each, unread_key)
                yield
            if registering and guid in kept | {self._canonical.get(each) for each in kept}:
                return  # it is registered, so nothing is compared
            taken_s = 0.0  # without what others do between the steps
            for pair in pairs:
                if taken_s > _COMPARING_S:
                    raise invalid_schema(
                        f"comparing it with the versions of subject {subject} takes longer than "
                        f"{_COMPARING_S:.0f} s: delete old versions, or choose a level that is not "
                        "transitive"
                    )
                began = time.perf_counter()
                self._compared.get(pair)
                taken_s += time.perf_counter() - began
                yield

        return steps()

    def _readable_key(self, value: SchemaValue) -> _ParseKey | None:
        try:
            return self._value_key(value)
        except RegistryError:
            return None

    def _value_key(self, value: SchemaValue) -> _ParseKey:
        return self._key(
            SchemaRequest(value.schema, value.schemaType, references=list(value.references))
        )

    def serialized(self, request: SchemaRequest) -> str:
        """Return a schema of Protobuf as base64 of its descriptor; raises RegistryError."""
        from gateway.schema_registry.protobuf_type import serialized

        referenced = self._referenced(request.references or (), {})
        return serialized(request.schema, referenced)

    def parse_value(self, value: SchemaValue) -> ParsedSchema:
        """Return the schema of a version; raises RegistryError if it cannot be read."""
        return self._parsed.get(self._value_key(value))

    def _referenced(
        self, references: Sequence[Reference], found: dict[str, str]
    ) -> list[Referenced]:
        for each in references:
            if each.name in found:
                continue
            if len(found) >= _REFERENCES_MAX:
                raise invalid_schema(f"more than {_REFERENCES_MAX} references")
            value = self.state.version(each.subject, self._numbered(each).version)
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

    def _numbered(self, reference: Reference) -> Reference:
        """Return a reference to the newest version with its number: it will not be the newest."""
        newest = self.state.newest(reference.subject)
        if reference.version != LATEST or newest is None:
            return reference
        return msgspec.structs.replace(reference, version=newest.version)

    def find(
        self, subject: str, parsed: ParsedSchema, *, deleted: bool = False
    ) -> SchemaValue | None:
        """Return the version of a subject that is a schema, None if there is none.

        That is one with the very text, else the newest one that is written in another way.
        """
        versions = self.state.versions(subject, deleted=deleted)
        for is_it in (_has_text, self._is):
            for value in reversed(versions):
                if is_it(value, parsed):
                    return value
        return None

    def id_of(self, parsed: ParsedSchema) -> int | None:
        """Return the id that a schema has in any subject, None if it has none yet."""
        same = self.state.with_guid(parsed.guid)
        if same is not None:
            return same.id
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
            self._keep_canonical(guid, self._readable_key(value))
        return self._canonical[guid]

    def _keep_canonical(self, guid: str, key: _ParseKey | None) -> None:
        try:
            self._canonical[guid] = guid if key is None else self._parsed.get(key).guid
        except RegistryError:
            self._canonical[guid] = guid  # it is not read here

    def incompatible(
        self,
        subject: str,
        request: SchemaRequest,
        against: Sequence[SchemaValue] | None = None,
        *,
        normalize: bool = False,
    ) -> list[str]:
        """Return why a schema is incompatible by the subject's level, empty if it is not.

        `against` are the versions to compare with, None for those that the level says. Raises
        RegistryError if they cannot be compared.
        """
        key = self._key(request, normalize=normalize)
        for value in self._to_compare(subject, against):
            reasons = []
            for pair in self._pairs(subject, key, self._value_key(value)):
                found = self._compared.get(pair)
                if isinstance(found, RegistryError):
                    raise RegistryError(found.code, str(found))
                reasons += found
            if reasons:
                return [
                    *dict.fromkeys(reasons),
                    f"{{oldSchemaVersion: {value.version}}}",
                    f"{{oldSchema: '{value.schema}'}}",
                    f"{{compatibility: '{self.state.level_of(subject)}'}}",
                ]
        return []

    def _to_compare(
        self, subject: str, against: Sequence[SchemaValue] | None
    ) -> Sequence[SchemaValue]:
        """Return the versions to compare with, the newest first."""
        level = self.state.level_of(subject)
        versions = self.state.versions(subject) if against is None else against
        if level == "NONE":
            return ()
        if against is None and not level.endswith("_TRANSITIVE"):
            versions = versions[-1:]
        return versions[::-1]

    def _pairs(self, subject: str, key: _ParseKey, earlier: _ParseKey) -> list[_Pair]:
        """Return the readers and writers that the subject's level compares."""
        kind = self.state.level_of(subject).removesuffix("_TRANSITIVE")
        backward = [_Pair(key, earlier)] if kind in ("BACKWARD", "FULL") else []
        return backward + ([_Pair(earlier, key)] if kind in ("FORWARD", "FULL") else [])

    def _compare(self, pair: _Pair) -> list[str] | RegistryError:
        """Return differences, or why there is no comparison, which is kept as well."""
        try:
            return incompatibilities(self._parsed.get(pair.reader), self._parsed.get(pair.writer))
        except RegistryError as error:
            return error

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


def _has_text(value: SchemaValue, parsed: ParsedSchema) -> bool:
    return value.guid == parsed.guid


def version_number(text: str) -> int:
    """Return a version's number, LATEST for `latest` and -1; raises RegistryError."""
    if text in ("latest", "-1"):
        return LATEST
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:11]) <= _VERSION_MAX:
        raise invalid_version(text[:100])
    return int(text)
