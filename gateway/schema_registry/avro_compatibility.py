"""Whether a schema of Avro reads what another one has written, in time that its size bounds.

The rules, and most of the words, are those of Apache's package. That compares each branch of a
union with each branch of the other one, looks for each field in a table that it makes anew, and
carries all that it has found along: a schema of 200 KB took it minutes and gigabytes. Here a branch
with a name meets those alone that it may fit, and pairs and differences are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, cast

from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityResult,
    SchemaCompatibilityType,
    SchemaIncompatibilityType,
    incompatible,
    merge,
    schema_name_equals,
)
from avro.schema import NamedSchema, Schema

from gateway.schema_registry.errors import invalid_schema

#: Pairs that one comparison looks at, some 5 us each. A schema has at most 10,000 values.
COMPARED_MAX: Final = 100_000
#: Differences that are told of a union or record.
_TOLD_MAX: Final = 100
_NAMED: Final = frozenset(("record", "enum", "fixed"))
_UNDER_WAY: Final = SchemaCompatibilityResult()
_COMPATIBLE: Final = SchemaCompatibilityResult(SchemaCompatibilityType.compatible)


def compared(reader: Schema, writer: Schema) -> SchemaCompatibilityResult:
    """Return what Apache's package says; raises RegistryError if that needs too many steps."""
    return _Checker().get_compatibility(reader, writer)


class _Checker(ReaderWriterCompatibilityChecker):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._compared = 0
        # By identity: both schemas live as long as the comparison.
        self._results: Final[dict[tuple[int, int], SchemaCompatibilityResult]] = {}
        self._tables: Final[dict[int, Any]] = {}

    def _count(self) -> None:
        self._compared += 1
        if self._compared > COMPARED_MAX:
            raise invalid_schema(
                f"comparing it takes more than {COMPARED_MAX} steps: its unions, or records that "
                "contain each other, have too many combinations"
            )

    def get_compatibility(
        self,
        reader: Schema,
        writer: Schema,
        reference_token: str = "/",  # noqa: S107 - a place
        location: list[str] | None = None,
    ) -> SchemaCompatibilityResult:
        """Compare each pair once; one that is being compared further up decides there."""
        self._count()
        pair = id(reader), id(writer)
        found = self._results.get(pair)
        if found is None:
            self._results[pair] = _UNDER_WAY
            place = [*(location or ()), reference_token]
            found = self._results[pair] = self.calculate_compatibility(reader, writer, place)
        return _COMPATIBLE if found is _UNDER_WAY else found

    def calculate_compatibility(
        self, reader: Schema, writer: Schema, location: list[str]
    ) -> SchemaCompatibilityResult:
        """Compare a pair, unions by the names of their branches."""
        if writer.type == "union":
            return _all_of(self._branches(reader, writer, location))
        if reader.type == "union":
            for branch in self._fitting(reader, writer):
                if _is_compatible(self.get_compatibility(branch, writer)):
                    return _COMPATIBLE
            return _lacking_branch(f"reader union lacking writer type {writer.type}", location)
        return super().calculate_compatibility(reader, writer, location)

    def _branches(
        self, reader: Schema, writer: Any, location: list[str]
    ) -> Iterator[SchemaCompatibilityResult]:
        for index, branch in enumerate(writer.schemas):
            found = self.get_compatibility(reader, branch)
            if reader.type != "union" or _is_compatible(found):
                yield found
            else:
                what = f"reader union lacking writer type: {branch.type.upper()}"
                yield _lacking_branch(what, [*location, str(index)])

    def _fitting(self, union: Any, writer: Any) -> Sequence[Schema]:
        """Return the branches of a reader that may read a writer, which is no union."""
        table = self._tables.get(id(union))
        if table is None:
            table = self._tables[id(union)] = _table_of_branches(union)
        found: Sequence[Schema]
        if writer.type not in _NAMED:
            found = table.get(None, ())
        else:
            found = [
                each
                for each in {
                    id(each): each
                    for name in (writer.name, writer.fullname)
                    for each in table.get((writer.type, name), ())
                }.values()
                if schema_name_equals(cast(NamedSchema, each), writer)
            ]
        return found

    def check_reader_writer_record_fields(
        self, reader: Any, writer: Any, location: list[str]
    ) -> SchemaCompatibilityResult:
        """Compare the fields of a reader with those of a writer, by names and aliases."""
        return _all_of(self._fields(reader, writer, location))

    def _fields(
        self, reader: Any, writer: Any, location: list[str]
    ) -> Iterator[SchemaCompatibilityResult]:
        written = self._tables.get(id(writer))
        if written is None:
            written = self._tables[id(writer)] = writer.fields_dict
        for index, field in enumerate(reader.fields):
            self._count()
            place = [*location, "fields", str(index)]
            names = (field.name, *_texts(field.props.get("aliases")))
            former = next((written[name] for name in names if name in written), None)
            if former is not None:
                yield self.get_compatibility(field.type, former.type, "type", place)
            elif not field.has_default:
                if field.type.type == "enum" and field.type.props.get("default"):
                    # As Apache's package has it: the default value of an enum is none of a field.
                    yield self.get_compatibility(field.type, writer, "type", place)
                else:
                    kind = SchemaIncompatibilityType.reader_field_missing_default_value
                    yield incompatible(kind, field.name, place)


def _table_of_branches(union: Any) -> dict[tuple[str, str] | None, list[Schema]]:
    """Return branches by type and by each name that they answer to; None: those without a name."""
    table: dict[tuple[str, str] | None, list[Schema]] = {}
    for branch in union.schemas:
        if branch.type not in _NAMED:
            table.setdefault(None, []).append(branch)
            continue
        for name in {branch.name, *_texts(branch.props.get("aliases"))}:
            table.setdefault((branch.type, name), []).append(branch)
    return table


def _texts(found: object) -> list[str]:
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _all_of(results: Iterable[SchemaCompatibilityResult]) -> SchemaCompatibilityResult:
    """Return one result for several; the differences of the first ones, if there are many."""
    whole = _COMPATIBLE
    for each in results:
        if not _is_compatible(each):
            whole = merge(whole, each)
            if len(whole.incompatibilities) >= _TOLD_MAX:
                break
    return whole


def _is_compatible(result: SchemaCompatibilityResult) -> bool:
    return result.compatibility is SchemaCompatibilityType.compatible


def _lacking_branch(what: str, location: list[str]) -> SchemaCompatibilityResult:
    return incompatible(SchemaIncompatibilityType.missing_union_branch, what, location)
