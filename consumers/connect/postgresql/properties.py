"""The properties of PostgreSqlSink, named as those of Confluent's and Aiven's JDBC sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from consumers.connect.configuration.definitions import (
    ConfigDef,
    ConfigType,
    ConfigValue,
    Importance,
    grouped_key,
)
from consumers.connect.configuration.exceptions import ConfigException, hidden_value, invalid_value
from consumers.connect.configuration.password import HIDDEN, Password
from consumers.connect.configuration.validators import at_least, between, non_empty, one_of
from consumers.connect.postgresql.connection_url import parse_url
from waylog.extras import install_command, is_installed

URL: Final = "connection.url"
USER: Final = "connection.user"
PASSWORD: Final = "connection.password"  # noqa: S105 - the name of the property
TABLE: Final = "table.name.format"
INSERT_MODE: Final = "insert.mode"
PK_MODE: Final = "pk.mode"
PK_FIELDS: Final = "pk.fields"
AUTO_CREATE: Final = "auto.create"
AUTO_EVOLVE: Final = "auto.evolve"
DELETE_ENABLED: Final = "delete.enabled"
BATCH_SIZE: Final = "batch.size"
MAX_RETRIES: Final = "max.retries"
RETRY_BACKOFF_MS: Final = "retry.backoff.ms"
WHITELIST: Final = "fields.whitelist"
TIMESTAMP_FIELDS: Final = "timestamp.fields"
GEOMETRY_FIELD: Final = "geometry.field"
GEOMETRY_SRID: Final = "geometry.srid"
LATITUDE_FIELD: Final = "latitude.field"
LONGITUDE_FIELD: Final = "longitude.field"
ERASURE_COLUMN: Final = "erasure.column"
ERASURE_TIME_COLUMNS: Final = "erasure.time.columns"
#: Of each task's properties: which one it is.
TASK_NUMBER: Final = "task.number"

TOPIC: Final = "${topic}"
#: The columns of pk.mode=kafka, if pk.fields does not name others.
KAFKA_FIELDS: Final = ("__connect_topic", "__connect_partition", "__connect_offset")
#: Of tables and schemas; PostgreSQL cuts longer ones off.
_NAME_BYTES_MAX: Final = 63
_CONNECTION, _WRITES, _MAPPING, _RETRIES = "Connection", "Writes", "Data Mapping", "Retries"
_ERASURES: Final = "Erasures"


_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


def _valid_url(name: str, value: Any) -> None:
    """Raise ConfigException, also for parameters that libpq does not know, if it is there."""
    if value is None:
        return
    parameters = parse_url(name, value)
    if parameters.get("sslmode", _SSL_MODES[0]) not in _SSL_MODES:
        raise hidden_value(name, f"sslmode is one of {', '.join(_SSL_MODES)}")
    if is_installed("postgresql"):
        from psycopg.pq import Conninfo

        known = {each.keyword.decode() for each in Conninfo.get_defaults()}
        if not known.issuperset(parameters):
            raise hidden_value(name, "libpq does not know a parameter behind the question mark")


def _valid_table(name: str, value: Any) -> None:
    if value is not None and (not value or any(not part for part in value.split("."))):
        raise invalid_value(name, value, "expected TABLE or SCHEMA.TABLE, such as " + TOPIC)
    if value is not None and "${" in value.replace(TOPIC, ""):
        raise invalid_value(name, value, f"only {TOPIC} is replaced")
    for part in (value or "").replace(TOPIC, "").split("."):
        if len(part.encode("utf-8", "replace")) > _NAME_BYTES_MAX:
            raise invalid_value(name, value, f"a name has {_NAME_BYTES_MAX} bytes at most")


CONFIG: Final = ConfigDef(
    [
        grouped_key(
            *(URL, ConfigType.STRING, _CONNECTION, 1),
            "Where the database is: postgresql://HOST:PORT/DATABASE, with libpq's parameters "
            "behind a question mark. It has no password.",
            importance=Importance.HIGH,
            validator=_valid_url,
        ),
        grouped_key(
            *(USER, ConfigType.STRING, _CONNECTION, 2),
            "The role that writes; without it that of the URL.",
            importance=Importance.HIGH,
            default=None,
        ),
        grouped_key(
            *(PASSWORD, ConfigType.PASSWORD, _CONNECTION, 3),
            "The role's password. It is in no log, no status and no error.",
            importance=Importance.HIGH,
            default=None,
        ),
        grouped_key(
            *(INSERT_MODE, ConfigType.STRING, _WRITES, 1),
            "insert leaves a row alone that has the key already; upsert makes it what the newest "
            "record says.",
            importance=Importance.HIGH,
            default="insert",
            validator=one_of("insert", "upsert"),
        ),
        grouped_key(
            *(BATCH_SIZE, ConfigType.INT, _WRITES, 2),
            "The most records of one transaction. A task gets 500 at once unless "
            "consumer.override.max.poll.records says otherwise.",
            importance=Importance.MEDIUM,
            default=3000,
            validator=between(1, 100_000),
        ),
        grouped_key(
            *(DELETE_ENABLED, ConfigType.BOOLEAN, _WRITES, 3),
            "Whether a record without a value (a tombstone) deletes the row of its key. Needs "
            "pk.mode=record_key and insert.mode=upsert.",
            importance=Importance.MEDIUM,
            default=False,
        ),
        grouped_key(
            *(TABLE, ConfigType.STRING, _MAPPING, 1),
            f"The table, or SCHEMA.TABLE; {TOPIC} stands for the topic.",
            importance=Importance.MEDIUM,
            default=TOPIC,
            validator=_valid_table,
        ),
        grouped_key(
            *(PK_MODE, ConfigType.STRING, _MAPPING, 2),
            "What identifies a row: record_value and record_key, fields of value or key that "
            "pk.fields names; kafka, topic, partition and offset; none, nothing: then a record "
            "that comes again makes another row.",
            importance=Importance.HIGH,
            default="none",
            validator=one_of("none", "kafka", "record_key", "record_value"),
        ),
        grouped_key(
            *(PK_FIELDS, ConfigType.LIST, _MAPPING, 3),
            "The columns of the key. For a key that is no struct, the one column that it goes to; "
            "for pk.mode=kafka three, " + ", ".join(KAFKA_FIELDS) + " by default.",
            importance=Importance.MEDIUM,
            default=[],
        ),
        grouped_key(
            *(WHITELIST, ConfigType.LIST, _MAPPING, 4),
            "The fields of values that are written; all of them if it is empty. Those of the key "
            "are always.",
            importance=Importance.MEDIUM,
            default=[],
        ),
        grouped_key(
            *(TIMESTAMP_FIELDS, ConfigType.LIST, _MAPPING, 5),
            "Fields with milliseconds since 1970-01-01 UTC whose columns are timestamps.",
            importance=Importance.LOW,
            default=[],
        ),
        grouped_key(
            *(AUTO_CREATE, ConfigType.BOOLEAN, _MAPPING, 6),
            "Whether a table that is missing is created.",
            importance=Importance.MEDIUM,
            default=False,
        ),
        grouped_key(
            *(AUTO_EVOLVE, ConfigType.BOOLEAN, _MAPPING, 7),
            "Whether columns that are missing are added.",
            importance=Importance.MEDIUM,
            default=False,
        ),
        grouped_key(
            *(GEOMETRY_FIELD, ConfigType.STRING, _MAPPING, 8),
            "A column for the place as a point of PostGIS; without PostGIS there is none.",
            importance=Importance.MEDIUM,
            default="",
        ),
        grouped_key(
            *(GEOMETRY_SRID, ConfigType.INT, _MAPPING, 9),
            "The reference system of that column: with 4326 it is created as geography, with "
            "another as geometry, into which places are transformed.",
            importance=Importance.LOW,
            default=4326,
            validator=between(1, 998_999),
        ),
        grouped_key(
            *(LATITUDE_FIELD, ConfigType.STRING, _MAPPING, 10),
            "The field with the latitude, in degrees WGS84.",
            importance=Importance.LOW,
            default="lat",
            validator=non_empty,
        ),
        grouped_key(
            *(LONGITUDE_FIELD, ConfigType.STRING, _MAPPING, 11),
            "The field with the longitude, in degrees WGS84.",
            importance=Importance.LOW,
            default="lon",
            validator=non_empty,
        ),
        grouped_key(
            *(ERASURE_COLUMN, ConfigType.STRING, _ERASURES, 1),
            "The column with the device, as topic erasure names it: rows of a device that is "
            "erased are deleted. A table without such a column keeps them; empty: all tables do.",
            importance=Importance.MEDIUM,
            default="device",
        ),
        grouped_key(
            *(ERASURE_TIME_COLUMNS, ConfigType.LIST, _ERASURES, 2),
            "Columns with times: rows are deleted in which one of them is not after the erasure. "
            "Empty: all rows of the device are. A table with none of them keeps its rows.",
            importance=Importance.LOW,
            default=["time", "received"],
        ),
        grouped_key(
            *(MAX_RETRIES, ConfigType.INT, _RETRIES, 1),
            "How often a batch is tried again while the database is away, before the task fails; "
            "-1: for ever.",
            importance=Importance.MEDIUM,
            default=-1,
            validator=at_least(-1),
        ),
        grouped_key(
            *(RETRY_BACKOFF_MS, ConfigType.INT, _RETRIES, 2),
            "Milliseconds until a batch is tried again.",
            importance=Importance.MEDIUM,
            default=3000,
            validator=at_least(0),
        ),
    ]
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The properties, parsed."""

    parameters: dict[str, str]  # of the connection, without the password
    password: Password | None
    table: tuple[str, ...]  # parts of its name, with TOPIC in them
    is_upsert: bool
    pk_mode: str
    pk_fields: tuple[str, ...]
    auto_create: bool
    auto_evolve: bool
    deletes: bool
    batch_records: int
    retries_max: int  # -1: no limit
    retry_backoff_ms: int
    whitelist: frozenset[str]  # empty: all
    timestamp_fields: frozenset[str]
    geometry_field: str  # empty: none
    geometry_srid: int
    latitude_field: str
    longitude_field: str
    erasure_column: str  # empty: none
    erasure_time_columns: tuple[str, ...]  # empty: whatever the time

    @staticmethod
    def of(properties: Mapping[str, Any]) -> Settings:
        """Return what a connector's properties say; raises ConfigException."""
        parsed = CONFIG.parse(properties)
        for name, reason in contradictions(parsed):
            raise invalid_value(name, parsed[name], reason)
        parameters = parse_url(URL, parsed[URL])
        if parsed[USER]:
            parameters["user"] = parsed[USER]
        mode = parsed[PK_MODE]
        fields = tuple(parsed[PK_FIELDS])
        return Settings(
            parameters=parameters,
            password=parsed[PASSWORD],
            table=tuple(parsed[TABLE].split(".")),
            is_upsert=parsed[INSERT_MODE] == "upsert",
            pk_mode=mode,
            pk_fields=KAFKA_FIELDS if mode == "kafka" and not fields else fields,
            auto_create=parsed[AUTO_CREATE],
            auto_evolve=parsed[AUTO_EVOLVE],
            deletes=parsed[DELETE_ENABLED],
            batch_records=parsed[BATCH_SIZE],
            retries_max=parsed[MAX_RETRIES],
            retry_backoff_ms=parsed[RETRY_BACKOFF_MS],
            whitelist=frozenset(parsed[WHITELIST]),
            timestamp_fields=frozenset(parsed[TIMESTAMP_FIELDS]),
            geometry_field=parsed[GEOMETRY_FIELD],
            geometry_srid=parsed[GEOMETRY_SRID],
            latitude_field=parsed[LATITUDE_FIELD],
            longitude_field=parsed[LONGITUDE_FIELD],
            erasure_column=parsed[ERASURE_COLUMN],
            erasure_time_columns=tuple(parsed[ERASURE_TIME_COLUMNS]),
        )


def contradictions(parsed: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return properties that do not go with others, each with the reason.

    A value that could not be parsed is None and goes with anything.
    """
    found: list[tuple[str, str]] = []
    mode, fields = parsed[PK_MODE], parsed[PK_FIELDS] or []
    if parsed[INSERT_MODE] == "upsert" and mode == "none":
        found.append((INSERT_MODE, f"upsert needs a key: {PK_MODE} is none"))
    if parsed[DELETE_ENABLED] and mode != "record_key":
        found.append((DELETE_ENABLED, f"it needs {PK_MODE}=record_key"))
    elif parsed[DELETE_ENABLED] and parsed[INSERT_MODE] == "insert":
        found.append((DELETE_ENABLED, f"it needs {INSERT_MODE}=upsert"))
    if mode in ("record_key", "record_value") and not fields:
        found.append((PK_FIELDS, f"{PK_MODE}={mode} needs the columns of the key"))
    if mode == "kafka" and len(fields) not in (0, 3):
        found.append((PK_FIELDS, "for topic, partition and offset three columns are needed"))
    if len(set(fields)) < len(fields) or "" in fields:
        found.append((PK_FIELDS, "a column is named twice, or has no name"))
    table = parsed[TABLE]
    if table is not None and len(table.split(".")) > 2:
        found.append((TABLE, "more than SCHEMA.TABLE; dots of topics need no care"))
    return found


def validated(properties: Mapping[str, Any]) -> dict[str, ConfigValue]:
    """Return what there is to say about each property, and about those that contradict."""
    found = CONFIG.validate(properties)
    url = found[URL]
    if url.errors:
        # What is wrong with it may be the password in it.
        url.value = None if url.value is None else HIDDEN
    parsed = {name: each.value for name, each in found.items()}
    for name, reason in contradictions(parsed):
        found[name].errors.append(str(invalid_value(name, parsed[name], reason)))
    if not is_installed("postgresql"):
        url.errors.append(
            str(
                ConfigException(
                    "PostgreSqlSink needs a library that is not installed: "
                    + install_command("postgresql")
                )
            )
        )
    return found
