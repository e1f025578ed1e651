"""TimestampConverter: times as texts, numbers and Connect's logical types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from typing import Any, ClassVar, Final, NamedTuple

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType, Importance
from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.configuration.validators import one_of
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import (
    DATE,
    OPTIONAL_DATE,
    OPTIONAL_TIME,
    OPTIONAL_TIMESTAMP,
    TIME,
    TIMESTAMP,
    timestamp_from_ms,
    timestamp_to_ms,
)
from consumers.connect.data.records import Record
from consumers.connect.data.schemas import (
    DATE_NAME,
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    TIME_NAME,
    TIMESTAMP_NAME,
    Schema,
    Type,
)
from consumers.connect.data.structs import Struct
from consumers.connect.java.date_pattern import DatePattern, DatePatternError
from consumers.connect.java.number_text import INT64_MAX, INT64_MIN
from consumers.connect.transforms.transform import (
    REPLACE_NULL,
    SCHEMAS_REMEMBERED,
    VALUE,
    Side,
    Transform,
    field_values,
    require_map,
    require_struct,
)
from waylog.bounded_cache import BoundedCache

_PURPOSE: Final = "converting timestamp formats"
_MIDNIGHT: Final = time(0)
_FIRST_DAY: Final = date(1970, 1, 1)
#: Schemas of the targets: required, optional.
_SCHEMAS: Final = {
    "string": (STRING, OPTIONAL_STRING),
    "unix": (INT64, OPTIONAL_INT64),
    "Date": (DATE, OPTIONAL_DATE),
    "Time": (TIME, OPTIONAL_TIME),
    "Timestamp": (TIMESTAMP, OPTIONAL_TIMESTAMP),
}
_BY_SCHEMA_NAME: Final = {DATE_NAME: "Date", TIME_NAME: "Time", TIMESTAMP_NAME: "Timestamp"}


class _Precision(NamedTuple):
    to_ms: Callable[[int], int]
    from_ms: Callable[[int], int]


def _divide(number: int, divisor: int) -> int:
    """Return the quotient without its fraction, as Java divides: towards 0."""
    return -(-number // divisor) if number < 0 else number // divisor


_PRECISIONS: Final = {
    "seconds": _Precision(lambda unix: unix * 1000, lambda ms: _divide(ms, 1000)),
    "milliseconds": _Precision(lambda unix: unix, lambda ms: ms),
    "microseconds": _Precision(lambda unix: _divide(unix, 1000), lambda ms: ms * 1000),
    "nanoseconds": _Precision(lambda unix: _divide(unix, 1_000_000), lambda ms: ms * 1_000_000),
}


class TimestampConverter(Transform):
    """Converts a field, or the whole key or value, from one form of times to another."""

    kafka_name = "org.apache.kafka.connect.transforms.TimestampConverter"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="field",
                type=ConfigType.STRING,
                default="",
                importance=Importance.HIGH,
                documentation="Name of the field; empty if the whole value is a time.",
            ),
            ConfigKey(
                name="target.type",
                type=ConfigType.STRING,
                validator=one_of(*_SCHEMAS),
                importance=Importance.HIGH,
                documentation="What it becomes: string, unix, Date, Time or Timestamp.",
            ),
            ConfigKey(
                name="format",
                type=ConfigType.STRING,
                default="",
                documentation="A pattern of java.text.SimpleDateFormat for texts, read and "
                "written, in UTC.",
            ),
            ConfigKey(
                name="unix.precision",
                type=ConfigType.STRING,
                default="milliseconds",
                validator=one_of(*_PRECISIONS),
                importance=Importance.LOW,
                documentation="The unit of numbers. Parts of a millisecond are lost.",
            ),
            REPLACE_NULL,
        ]
    )

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """Raises ConfigException, also for texts without a pattern."""
        super().__init__(properties, side)
        self._field: Final[str] = self.settings["field"]
        self._target: Final[str] = self.settings["target.type"]
        self._precision: Final = _PRECISIONS[self.settings["unix.precision"]]
        self._with_defaults: Final[bool] = self.settings[REPLACE_NULL.name]
        pattern = self.settings["format"]
        if not pattern and self._target == "string":
            raise ConfigException(
                "TimestampConverter requires format option to be specified when using string "
                "timestamps"
            )
        try:
            self._format: Final = DatePattern(pattern) if pattern else None
        except DatePatternError as error:
            raise ConfigException(
                "TimestampConverter requires a SimpleDateFormat-compatible pattern for string "
                f"timestamps: {pattern}"
            ) from error
        self._schemas: Final = BoundedCache(self._changed_schema, SCHEMAS_REMEMBERED)

    def apply(self, record: Record) -> Record:
        """Return the record with the time converted; DataException if it is none."""
        schema = self.side.schema(record)
        value = self.side.value(record)
        if schema is None:
            if value is None or not self._field:
                return self.side.changed(record, None, self._convert(value, None))
            fields = dict(require_map(value, _PURPOSE))
            fields[self._field] = self._convert(fields.get(self._field), None)
            return self.side.changed(record, None, fields)
        changed = self._schemas.get(schema)
        if not self._field:
            return self.side.changed(record, changed, self._convert(value, _form_of(schema)))
        if value is not None:
            value = self._convert_struct(require_struct(value, _PURPOSE), changed)
        return self.side.changed(record, changed, value)

    def _convert_struct(self, struct: Struct, changed: Schema) -> Struct:
        values = field_values(struct, with_defaults=self._with_defaults)
        return Struct.of(
            changed,
            [
                self._convert(each, _form_of(field.schema)) if field.name == self._field else each
                for field, each in zip(struct.schema.fields, values, strict=True)
            ],
        )

    def _changed_schema(self, schema: Schema) -> Schema:
        if not self._field:
            return _SCHEMAS[self._target][schema.optional]
        if schema.type is not Type.STRUCT:
            raise DataException(
                f"Only Struct objects supported for [{_PURPOSE}], found: {schema.type}"
            )
        fields = [
            (
                each.name,
                _SCHEMAS[self._target][each.schema.optional]
                if each.name == self._field
                else each.schema,
            )
            for each in schema.fields
        ]
        changed = schema.replace(fields=fields, default=None)
        if schema.default is None:
            return changed
        return changed.replace(default=self._convert_struct(schema.default, changed))

    def _convert(self, value: Any, form: str | None) -> Any:
        if value is None:
            return None
        instant = self._read(value, form or _form_of_value(value))
        match self._target:
            case "Timestamp":
                return instant
            case "Date":
                return instant.date()
            case "Time":
                return instant.time()
            case "unix":
                unix = self._precision.from_ms(timestamp_to_ms(TIMESTAMP, instant))
                # As TimeUnit of Java: the largest number there is.
                return max(INT64_MIN, min(INT64_MAX, unix))
            case _:
                assert self._format is not None, "the constructor has asked for it"
                return self._format.format(instant)

    def _read(self, value: Any, form: str) -> datetime:
        match form:
            case "Timestamp" if isinstance(value, datetime):
                return timestamp_from_ms(TIMESTAMP, timestamp_to_ms(TIMESTAMP, value))
            case "Date" if isinstance(value, date) and not isinstance(value, datetime):
                return datetime.combine(value, _MIDNIGHT, UTC)
            case "Time" if isinstance(value, time):
                return datetime.combine(_FIRST_DAY, value.replace(tzinfo=None), UTC)
            case "unix" if isinstance(value, int) and not isinstance(value, bool):
                return timestamp_from_ms(TIMESTAMP, self._precision.to_ms(value))
            case "string" if isinstance(value, str):
                return self._read_text(value)
            case _:
                raise DataException(
                    f"Expected a {form} timestamp, but found {type(value).__name__}"
                )

    def _read_text(self, text: str) -> datetime:
        if self._format is None:
            raise DataException("A string timestamp cannot be read without option format")
        try:
            return self._format.parse(text)
        except DatePatternError as error:
            raise DataException(
                f"Could not parse timestamp: value ({text}) does not match pattern "
                f"({self._format.pattern})"
            ) from error


def _form_of(schema: Schema) -> str:
    if schema.name in _BY_SCHEMA_NAME:
        return _BY_SCHEMA_NAME[schema.name]
    if schema.type is Type.STRING:
        return "string"
    if schema.type is Type.INT64:
        return "unix"
    raise DataException(f"Schema {schema} does not correspond to a known timestamp type format")


def _form_of_value(value: Any) -> str:
    for kind, form in (
        (datetime, "Timestamp"),
        (date, "Date"),
        (time, "Time"),
        (str, "string"),
    ):
        if isinstance(value, kind):
            return form
    if isinstance(value, int) and not isinstance(value, bool):
        return "unix"
    raise DataException(
        f"TimestampConverter does not support {type(value).__name__} objects as timestamps"
    )
