"""Changes of a registry: requests to records of the topic, by the state before them.

Whoever decides must know that no other registry has written since (gateway.schema_registry.store).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from gateway.schema_registry.errors import (
    RegistryError,
    incompatible,
    invalid_compatibility,
    invalid_mode,
    is_referred_to,
    no_compatibility_of,
    no_mode_of,
    not_permitted,
    subject_is_not_soft_deleted,
    subject_is_soft_deleted,
    subject_not_found,
    version_is_not_soft_deleted,
    version_is_soft_deleted,
)
from gateway.schema_registry.parsed import ParsedSchema
from gateway.schema_registry.records import (
    Record,
    SchemaValue,
    config_record,
    deleted_subject_record,
    mode_record,
    no_schema_record,
    schema_record,
)
from gateway.schema_registry.schemas import LEVELS, SchemaRequest, Schemas
from gateway.schema_registry.state import DEFAULT_LEVEL, DEFAULT_MODE

#: Bounds of what a registry keeps in memory.
SUBJECTS_MAX: Final = 100_000
VERSIONS_MAX: Final = 10_000  # of a subject, deleted ones too
TEXT_BYTES_MAX: Final = 512 * 1024 * 1024
MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
_SUBJECT_CHARACTERS_MAX: Final = 1024
#: What Confluent's registry would read otherwise, if it took over the topic.
_RESERVED: Final = frozenset(("__GLOBAL", "__EMPTY"))
_CONTEXT_PREFIXES: Final = (":.", ":*:")


class Decision(NamedTuple):
    """The records to write, none if nothing changes, and the answer once they are written."""

    records: list[Record]
    answer: Any


class Changes:
    """Decides about requests; raises RegistryError for what is refused."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas: Final = schemas
        self._state: Final = schemas.state

    # ---- versions ----

    def register(self, subject: str, request: SchemaRequest, *, normalize: bool) -> Decision:
        """Register a schema under a subject, unless it is its own already."""
        _check_subject(subject)
        parsed = self._schemas.parse(request, normalize=normalize)
        found = self._schemas.find(subject, parsed)
        mode = self._state.mode_of(subject)
        given = _given(request.id), _given(request.version)
        if found is not None and given in (
            (None, None),
            (found.id, None),
            (found.id, found.version),
        ):
            return Decision([], _registered(found))
        if mode in ("READONLY", "READONLY_OVERRIDE"):
            raise not_permitted(f"Subject {subject} is in read-only mode")
        self._check_room(subject, parsed)
        if mode == "IMPORT":
            return self._import(subject, parsed, *given)
        if given[0] is not None:
            raise not_permitted(f"Subject {subject} is not in import mode")
        reasons = self._schemas.incompatible(subject, request, normalize=normalize)
        if reasons:
            raise incompatible(
                "Schema being registered is incompatible with an earlier schema for subject "
                f'"{subject}", details: [{", ".join(reasons)}]'
            )
        version = self._next_version(subject)
        if given[1] not in (None, version):
            raise RegistryError(42201, f"The next version of subject {subject} is {version}")
        schema_id = self._schemas.id_of(parsed)
        return self._add(
            subject, parsed, self._state.id_max + 1 if schema_id is None else schema_id, version
        )

    def _import(
        self, subject: str, parsed: ParsedSchema, schema_id: int | None, version: int | None
    ) -> Decision:
        if schema_id is None:
            raise not_permitted(f"Subject {subject} is in import mode")
        others = self._state.with_id(schema_id)
        if others and self._schemas.parse_value(others[0]).text != parsed.text:
            raise not_permitted(f"Overwrite new schema with id {schema_id} is not permitted.")
        return self._add(subject, parsed, schema_id, version or self._next_version(subject))

    def _check_room(self, subject: str, parsed: ParsedSchema) -> None:
        """Raise RegistryError if there would be more than a registry keeps."""
        versions = self._state.versions(subject, deleted=True)
        is_new = not versions
        bounds = (
            (is_new and self._state.subject_count >= SUBJECTS_MAX, f"{SUBJECTS_MAX} subjects"),
            (len(versions) >= VERSIONS_MAX, f"{VERSIONS_MAX} versions of a subject"),
            (
                self._state.text_bytes + len(parsed.text) > TEXT_BYTES_MAX,
                f"{TEXT_BYTES_MAX >> 20} MiB of schemas",
            ),
        )
        for is_full, what in bounds:
            if is_full:
                raise RegistryError(42200, f"A registry keeps at most {what}: delete some for ever")

    def _next_version(self, subject: str) -> int:
        versions = self._state.versions(subject, deleted=True)
        return versions[-1].version + 1 if versions else 1

    @staticmethod
    def _add(subject: str, parsed: ParsedSchema, schema_id: int, version: int) -> Decision:
        value = SchemaValue(
            subject=subject,
            version=version,
            id=schema_id,
            schema=parsed.text,
            schemaType=parsed.type,
            references=parsed.references,
        )
        return Decision([schema_record(value)], _registered(value))

    def delete_version(self, subject: str, version: str, *, permanent: bool) -> Decision:
        """Delete a version: softly first, then for ever."""
        self._check_writable(subject)
        if not self._state.versions(subject, deleted=True):
            raise subject_not_found(subject)
        value = self._schemas.get(subject, version, deleted=version not in ("latest", "-1"))
        self._check_unused(value)
        if permanent:
            if not value.deleted:
                raise version_is_not_soft_deleted(subject, value.version)
            records = [no_schema_record(subject, value.version)]
            if len(self._state.versions(subject, deleted=True)) == 1:
                records += self._settings_of(subject)
            return Decision(records, value.version)
        if value.deleted:
            raise version_is_soft_deleted(subject, value.version)
        deleted = msgspec.structs.replace(value, deleted=True)
        return Decision([schema_record(deleted)], value.version)

    def delete_subject(self, subject: str, *, permanent: bool) -> Decision:
        """Delete all versions of a subject: softly first, then for ever."""
        self._check_writable(subject)
        versions = self._state.versions(subject, deleted=True)
        living = [each for each in versions if not each.deleted]
        if not versions:
            raise subject_not_found(subject)
        if permanent:
            if living:
                raise subject_is_not_soft_deleted(subject)
            records = [no_schema_record(subject, each.version) for each in versions]
            records += [deleted_subject_record(subject, None), *self._settings_of(subject)]
            return Decision(records, [each.version for each in versions])
        if not living:
            raise subject_is_soft_deleted(subject)
        for each in living:
            self._check_unused(each)
        records = [deleted_subject_record(subject, living[-1].version), *self._settings_of(subject)]
        return Decision(records, [each.version for each in living])

    def _check_unused(self, value: SchemaValue) -> None:
        if self._state.referring(value.subject, value.version):
            raise is_referred_to(value.subject, value.version)

    def _check_writable(self, subject: str) -> None:
        if self._state.mode_of(subject) in ("READONLY", "READONLY_OVERRIDE"):
            raise not_permitted(f"Subject {subject} is in read-only mode")

    def _settings_of(self, subject: str) -> list[Record]:
        """Return the records that take a subject's own level and mode away."""
        records = []
        if self._state.level(subject) is not None:
            records.append(config_record(subject, None))
        if self._state.mode(subject) is not None:
            records.append(mode_record(subject, None))
        return records

    # ---- compatibility levels and modes ----

    def set_level(self, subject: str | None, level: str) -> Decision:
        """Set the compatibility level of a subject, or of all (None)."""
        if level.upper() not in LEVELS:
            raise invalid_compatibility()
        if subject is not None:
            _check_subject(subject)
            self._check_writable(subject)
        return Decision([config_record(subject, level.upper())], {"compatibility": level.upper()})

    def delete_level(self, subject: str | None) -> Decision:
        """Take the compatibility level of a subject away, or set that of all back."""
        former = self._state.level(subject)
        if former is None and subject is not None:
            raise no_compatibility_of(subject)
        return Decision(
            [config_record(subject, None)], {"compatibilityLevel": former or DEFAULT_LEVEL}
        )

    def set_mode(self, subject: str | None, mode: str, *, force: bool) -> Decision:
        """Set the mode of a subject, or of all (None)."""
        if mode.upper() not in MODES:
            raise invalid_mode()
        if subject is not None:
            _check_subject(subject)
        former = self._state.mode_of(subject) if subject else self._state.mode(None)
        if mode.upper() == "IMPORT" and former != "IMPORT" and not force:
            subjects = self._state.subjects() if subject is None else [subject]
            if any(self._state.versions(each) for each in subjects):
                raise not_permitted("Cannot import since found existing subjects")
        return Decision([mode_record(subject, mode.upper())], {"mode": mode.upper()})

    def delete_mode(self, subject: str | None) -> Decision:
        """Take the mode of a subject away, or set that of all back."""
        former = self._state.mode(subject)
        if former is None and subject is not None:
            raise no_mode_of(subject)
        return Decision([mode_record(subject, None)], {"mode": former or DEFAULT_MODE})


def _given(number: int | None) -> int | None:
    return number if number is not None and number > 0 else None


def _check_subject(subject: str) -> None:
    if subject in _RESERVED or subject.startswith(_CONTEXT_PREFIXES):
        raise RegistryError(
            42208,
            f"The specified subject '{subject[:100]}' is not valid: it is reserved, or names a "
            "context, and contexts are not supported. Choose another name",
        )
    if not subject or len(subject) > _SUBJECT_CHARACTERS_MAX or not subject.isprintable():
        raise RegistryError(42208, f"The specified subject '{subject[:100]}' is not a valid.")


def _registered(value: SchemaValue) -> dict[str, Any]:
    answer: dict[str, Any] = {"id": value.id, "version": value.version, "guid": value.guid}
    if value.schemaType != "AVRO":
        answer["schemaType"] = value.schemaType
    if value.references:
        answer["references"] = value.references
    return answer | {"schema": value.schema}
