"""What a schema registry holds: subjects with their versions, compatibility levels, modes.

Everything follows from the records of the topic, in their order; nothing else changes the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from gateway.schema_registry.records import (
    LATEST,
    ConfigRecord,
    ModeRecord,
    Read,
    SchemaRecord,
    SchemaValue,
)

#: Of all subjects without a level or mode of their own.
DEFAULT_LEVEL: Final = "BACKWARD"
DEFAULT_MODE: Final = "READWRITE"


class State:
    """The state after some records."""

    def __init__(self) -> None:
        self._subjects: Final[dict[str, dict[int, SchemaValue]]] = {}
        self._by_id: Final[dict[int, dict[tuple[str, int], SchemaValue]]] = {}
        self._by_guid: Final[dict[str, dict[tuple[str, int], SchemaValue]]] = {}
        self._levels: Final[dict[str | None, str]] = {}
        self._modes: Final[dict[str | None, str]] = {}
        #: The greatest id that was ever given.
        self.id_max = 0
        #: How many versions there are, deleted ones too; how many are not deleted; their texts.
        self.size = 0
        self.living = 0
        self.text_bytes = 0

    def apply(self, record: Read) -> None:
        """Take the next record."""
        if isinstance(record, SchemaRecord):
            self._put(record)
        elif isinstance(record, ConfigRecord):
            _set(self._levels, record.subject, record.level)
        elif isinstance(record, ModeRecord):
            _set(self._modes, record.subject, record.mode)
        elif record.version is not None:
            for value in list(self._subjects.get(record.subject, {}).values()):
                if value.version <= record.version and not value.deleted:
                    self._place(msgspec.structs.replace(value, deleted=True))

    def _put(self, record: SchemaRecord) -> None:
        former = self._subjects.get(record.subject, {}).pop(record.version, None)
        if former is not None:
            self._count(former, -1)
            _remove(self._by_id, former.id, former)
            _remove(self._by_guid, former.guid, former)
        if record.value is not None:
            self._place(record.value)
        elif not self._subjects.get(record.subject):
            self._subjects.pop(record.subject, None)

    def _count(self, value: SchemaValue, number: int) -> None:
        self.size += number
        self.living += 0 if value.deleted else number
        self.text_bytes += number * len(value.schema)

    def _place(self, value: SchemaValue) -> None:
        former = self._subjects.get(value.subject, {}).get(value.version)
        if former is not None:
            self._count(former, -1)
        self._count(value, 1)
        self._subjects.setdefault(value.subject, {})[value.version] = value
        self._by_id.setdefault(value.id, {})[value.subject, value.version] = value
        self._by_guid.setdefault(value.guid, {})[value.subject, value.version] = value
        self.id_max = max(self.id_max, value.id)

    # ---- reading ----

    @property
    def subject_count(self) -> int:
        """How many subjects there are, also those with nothing but deleted versions."""
        return len(self._subjects)

    @property
    def schemas(self) -> int:
        """How many ids there are."""
        return len(self._by_id)

    def subjects(self) -> list[str]:
        """Return the names of all subjects, also of those with nothing but deleted versions."""
        return sorted(self._subjects)

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaValue]:
        """Return the versions of a subject in their order, deleted ones if asked for."""
        found = self._subjects.get(subject, {})
        return [found[each] for each in sorted(found) if deleted or not found[each].deleted]

    def version(self, subject: str, version: int) -> SchemaValue | None:
        """Return a version, which may be a deleted one; None if there is none."""
        return self._subjects.get(subject, {}).get(version)

    def newest(self, subject: str) -> SchemaValue | None:
        """Return the newest version of a subject that is not deleted, None if there is none."""
        return next(reversed(self.versions(subject)), None)

    def with_id(self, schema_id: int) -> list[SchemaValue]:
        """Return all versions that are this schema, deleted ones too."""
        found = self._by_id.get(schema_id, {})
        return [found[each] for each in sorted(found)]

    def with_guid(self, guid: str) -> SchemaValue | None:
        """Return a version that is this schema, which may be a deleted one; None if none is."""
        return next(iter(self._by_guid.get(guid, {}).values()), None)

    def all_versions(self) -> Iterator[SchemaValue]:
        """Yield all versions of all subjects, deleted ones too."""
        for subject in self.subjects():
            yield from self.versions(subject, deleted=True)

    def referring(self, subject: str, version: int) -> list[SchemaValue]:
        """Return the versions that are not deleted and use a version."""
        newest = self.newest(subject)
        numbers = {version}
        if newest is not None and newest.version == version:
            # Records of older registries have references to the newest version as such.
            numbers.add(LATEST)
        return [
            each
            for each in self.all_versions()
            if not each.deleted
            and any(one.subject == subject and one.version in numbers for one in each.references)
        ]

    def level(self, subject: str | None) -> str | None:
        """Return the compatibility level of a subject, or of all (None), as far as it is set."""
        return self._levels.get(subject)

    def level_of(self, subject: str) -> str:
        """Return the compatibility level that a subject has."""
        return self._levels.get(subject) or self._levels.get(None) or DEFAULT_LEVEL

    def mode(self, subject: str | None) -> str | None:
        """Return the mode of a subject, or of all (None), as far as it is set."""
        return self._modes.get(subject)

    def mode_of(self, subject: str) -> str:
        """Return the mode that a subject has."""
        of_all = self._modes.get(None)
        if of_all == "READONLY_OVERRIDE":
            return of_all
        return self._modes.get(subject) or of_all or DEFAULT_MODE


_Named = TypeVar("_Named")


def _remove(
    by_name: dict[_Named, dict[tuple[str, int], SchemaValue]], name: _Named, value: SchemaValue
) -> None:
    uses = by_name[name]
    del uses[value.subject, value.version]
    if not uses:
        del by_name[name]


def _set(values: dict[str | None, str], subject: str | None, value: str | None) -> None:
    if value is None:
        values.pop(subject, None)
    else:
        values[subject] = value
