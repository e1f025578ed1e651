"""Answers of a registry that change nothing."""

from __future__ import annotations

from typing import Any, Final

from gateway.schema_registry.errors import (
    no_compatibility_of,
    no_mode_of,
    schema_not_found,
    subject_not_found,
)
from gateway.schema_registry.records import SchemaValue
from gateway.schema_registry.schemas import SchemaRequest, Schemas
from gateway.schema_registry.state import DEFAULT_LEVEL, DEFAULT_MODE
from waylog.serialization.schema_types import PROTOBUF


class Queries:
    """Answers by the present state; raises RegistryError."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas: Final = schemas
        self._state: Final = schemas.state

    def subjects(self, prefix: str, *, deleted: bool, deleted_only: bool) -> list[str]:
        """Return names of subjects."""
        found = []
        for subject in self._state.subjects():
            living = bool(self._state.versions(subject))
            if subject.startswith(prefix) and (not living if deleted_only else living or deleted):
                found.append(subject)
        return found

    def versions(self, subject: str, *, deleted: bool, deleted_only: bool) -> list[int]:
        """Return the numbers of a subject's versions."""
        found = [
            each.version
            for each in self._state.versions(subject, deleted=deleted or deleted_only)
            if each.deleted or not deleted_only
        ]
        if not found:
            raise subject_not_found(subject)
        return found

    def version(self, subject: str, version: str, *, deleted: bool) -> dict[str, Any]:
        """Return a version."""
        return self._shown(self._schemas.get(subject, version, deleted=deleted))

    def text(self, subject: str, version: str, *, deleted: bool) -> str:
        """Return the text of a version."""
        return self._schemas.get(subject, version, deleted=deleted).schema

    def referenced_by(self, subject: str, version: str) -> list[int]:
        """Return the ids of the schemas that use a version."""
        value = self._schemas.get(subject, version)
        return sorted({each.id for each in self._state.referring(subject, value.version)})

    def lookup(
        self, subject: str, request: SchemaRequest, *, deleted: bool, normalize: bool
    ) -> dict[str, Any]:
        """Return the version of a subject that is a schema."""
        if not self._state.versions(subject, deleted=deleted):
            raise subject_not_found(subject)
        parsed = self._schemas.parse(request, normalize=normalize)
        found = self._schemas.find(subject, parsed, deleted=deleted)
        if found is None:
            raise schema_not_found()
        return self._shown(found)

    def schemas(self, prefix: str, *, deleted: bool, latest_only: bool) -> list[dict[str, Any]]:
        """Return versions of all subjects."""
        found = []
        for subject in self._state.subjects():
            if subject.startswith(prefix):
                versions = self._state.versions(subject, deleted=deleted)
                found += versions[-1:] if latest_only else versions
        return [self._shown(each) for each in found]

    def schema(self, schema_id: int, *, with_id_max: bool = False) -> dict[str, Any]:
        """Return a schema by its id."""
        value = self._with_id(schema_id)[0]
        shown = self._shown(value)
        answer = {name: shown[name] for name in _OF_SCHEMA if name in shown}
        return answer | ({"maxId": self._state.id_max} if with_id_max else {})

    def formatted(self, shown: dict[str, Any], format_: str) -> dict[str, Any]:
        """Return a schema as asked for: `serialized` is base64 of Protobuf's descriptor.

        Other words, and types, are shown as they are.
        """
        if format_ != "serialized" or shown.get("schemaType") != PROTOBUF:
            return shown
        references = list(shown.get("references", ()))
        request = SchemaRequest(shown["schema"], PROTOBUF, references=references)
        return shown | {"schema": self._schemas.serialized(request)}

    def schema_with_guid(self, guid: str) -> dict[str, Any]:
        """Return a schema by its GUID."""
        value = self._state.with_guid(guid.lower())
        if value is None:
            raise schema_not_found(guid[:100])
        shown = self._shown(value)
        return {name: shown[name] for name in _OF_SCHEMA if name in shown}

    def subjects_of(self, schema_id: int, *, deleted: bool) -> list[str]:
        """Return the subjects that have a schema."""
        return sorted(
            {each.subject for each in self._with_id(schema_id) if deleted or not each.deleted}
        )

    def versions_of(self, schema_id: int, *, deleted: bool) -> list[dict[str, Any]]:
        """Return the versions that are a schema."""
        return [
            {"subject": each.subject, "version": each.version}
            for each in self._with_id(schema_id)
            if deleted or not each.deleted
        ]

    def _with_id(self, schema_id: int) -> list[SchemaValue]:
        found = self._state.with_id(schema_id)
        if not found:
            raise schema_not_found(schema_id)
        return found

    def level(self, subject: str | None, *, default_to_global: bool) -> dict[str, str]:
        """Return the compatibility level of a subject, or of all (None)."""
        level = self._state.level(subject)
        if level is None and subject is not None and not default_to_global:
            raise no_compatibility_of(subject)
        return {"compatibilityLevel": level or self._state.level(None) or DEFAULT_LEVEL}

    def mode(self, subject: str | None, *, default_to_global: bool) -> dict[str, str]:
        """Return the mode of a subject, or of all (None)."""
        mode = self._state.mode(subject)
        if mode is None and subject is not None and not default_to_global:
            raise no_mode_of(subject)
        return {"mode": mode or self._state.mode(None) or DEFAULT_MODE}

    def compatibility(
        self,
        subject: str,
        version: str | None,
        request: SchemaRequest,
        *,
        verbose: bool,
        normalize: bool = False,
    ) -> dict[str, Any]:
        """Return whether a schema is compatible with a version, or (None) as registering asks."""
        parsed = self._schemas.parse(request, normalize=normalize)
        against = None if version is None else [self._schemas.get(subject, version)]
        reasons = self._schemas.incompatible(subject, parsed, against)
        answer: dict[str, Any] = {"is_compatible": not reasons}
        return answer | {"messages": reasons} if verbose else answer

    def _shown(self, value: SchemaValue) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "subject": value.subject,
            "version": value.version,
            "id": value.id,
            "guid": value.guid,
        }
        if value.schemaType != "AVRO":
            answer["schemaType"] = value.schemaType
        if value.references:
            answer["references"] = value.references
        answer["schema"] = value.schema
        return answer | ({"deleted": True} if value.deleted else {})


_OF_SCHEMA: Final = ("schema", "schemaType", "references", "guid")
