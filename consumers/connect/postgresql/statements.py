"""The statements; names are quoted by psycopg, and no value is part of any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from psycopg.sql import SQL, Composed, Identifier, Literal

from consumers.connect.postgresql.geometry import WGS84

#: Names, types and what PostgreSQL knows of the columns of a table; those of domains are resolved.
COLUMNS: Final = SQL(
    "SELECT a.attname, t.typname, t.typcategory,"
    " a.attgenerated <> '' OR a.attidentity = 'a'"
    " FROM pg_attribute a JOIN pg_type d ON d.oid = a.atttypid"
    " JOIN pg_type t ON t.oid = CASE d.typtype WHEN 'd' THEN d.typbasetype ELSE d.oid END"
    " WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped"
    " ORDER BY a.attnum"
)
#: Where PostGIS is; no row if it is not there.
POSTGIS: Final = SQL(
    "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace"
    " WHERE e.extname = 'postgis'"
)
#: A server or a role with `synchronous_commit = off` forgets the last rows when it crashes, whose
#: offsets are committed by then.
DURABLE_COMMITS: Final = SQL(
    "SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') = 'off'"
)


def column_list(columns: Iterable[str]) -> Composed:
    """Return names, separated by commas."""
    return SQL(", ").join(map(Identifier, columns))


def create_table(table: Identifier, types: Mapping[str, Composed], key: Sequence[str]) -> Composed:
    """Return what creates a table."""
    lines = [SQL("{} {}").format(Identifier(name), type_) for name, type_ in types.items()]
    if key:
        lines.append(SQL("PRIMARY KEY ({})").format(column_list(key)))
    return SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(table, SQL(", ").join(lines))


def add_columns(table: Identifier, types: Mapping[str, Composed]) -> Composed:
    """Return what adds columns to a table."""
    added = [
        SQL("ADD COLUMN IF NOT EXISTS {} {}").format(Identifier(name), type_)
        for name, type_ in types.items()
    ]
    return SQL("ALTER TABLE {} {}").format(table, SQL(", ").join(added))


def plain_type(type_: str) -> Composed:
    """Return the type of a column by its name, one of `column_types`."""
    return Composed([SQL(type_)])  # it is a literal of ours


def place_type(schema: str, srid: int) -> Composed:
    """Return the type of a column for points; `schema` is the one that PostGIS is in."""
    name = "geography" if srid == WGS84 else "geometry"
    return SQL("{}(Point, {})").format(Identifier(schema, name), Literal(srid))


def create_staging(
    staging: Identifier, table: Identifier, columns: Sequence[str], place: tuple[str, str] | None
) -> Composed:
    """Return what creates the table of this session that records are copied into.

    Its columns have the types of the target's, but no constraints. `place` is the column that is a
    geometry, and the schema of PostGIS: its points are not of the target's system yet.
    """
    selected = [
        SQL("NULL::{} AS {}").format(Identifier(place[1], "geometry"), Identifier(name))
        if place is not None and name == place[0]
        else Identifier(name)
        for name in columns
    ]
    return SQL(
        "CREATE TEMPORARY TABLE {} ON COMMIT DELETE ROWS AS SELECT {} FROM {} WITH NO DATA"
    ).format(staging, SQL(", ").join(selected), table)


def copy_into(staging: Identifier, columns: Sequence[str]) -> Composed:
    """Return what copies rows into the table of this session."""
    return SQL("COPY {} ({}) FROM STDIN").format(staging, column_list(columns))


def merge(
    staging: Identifier,
    table: Identifier,
    columns: Sequence[str],
    key: Sequence[str],
    place: tuple[str, str, int] | None,
    *,
    is_upsert: bool,
) -> Composed:
    """Return what moves rows into the table.

    They are moved in the order of their keys: tasks that write the same ones wait for each other's
    rows, and none of them for one that waits for it. Without `is_upsert` rows stay as they are
    whose key is there. `place` is the column that is a
    geometry, the schema of PostGIS and the reference system that its points are transformed into.
    """
    selected = [
        SQL("{}({}, {})").format(
            Identifier(place[1], "st_transform"), Identifier(name), Literal(place[2])
        )
        if place is not None and name == place[0]
        else Identifier(name)
        for name in columns
    ]
    statement = SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(
        table, column_list(columns), SQL(", ").join(selected), staging
    )
    if not key:
        return statement
    statement += SQL(" ORDER BY {}").format(column_list(key))
    others = [name for name in columns if name not in key]
    if not is_upsert or not others:
        return statement + SQL(" ON CONFLICT ({}) DO NOTHING").format(column_list(key))
    updates = SQL(", ").join(SQL("{0} = EXCLUDED.{0}").format(Identifier(name)) for name in others)
    return statement + SQL(" ON CONFLICT ({}) DO UPDATE SET {}").format(column_list(key), updates)


def delete(staging: Identifier, table: Identifier, key: Sequence[str]) -> Composed:
    """Return what deletes the rows of the keys that were copied.

    They are locked in the order of their keys before, as `merge` locks them.
    """
    same = SQL(" AND ").join(SQL("t.{0} = s.{0}").format(Identifier(name)) for name in key)
    order = SQL(", ").join(SQL("t.{}").format(Identifier(name)) for name in key)
    return SQL(
        "WITH locked AS MATERIALIZED (SELECT 1 FROM {0} AS t JOIN {1} AS s ON {2} ORDER BY {3}"
        " FOR UPDATE OF t), counted AS MATERIALIZED (SELECT count(*) AS n FROM locked)"
        " DELETE FROM {0} AS t USING {1} AS s, counted WHERE {2} AND counted.n >= 0"
    ).format(table, staging, same, order)


def delete_erased(
    table: Identifier, device: str, whole_times: Sequence[str], timestamps: Sequence[str]
) -> Composed:
    """Return what deletes rows of erased devices, given arrays of devices and of times in ms.

    Rows are deleted in which one of the columns of times, whole numbers of ms or timestamps, is not
    after the erasure; without such columns all rows of a device are.
    """
    times = [SQL("t.{} <= e.before").format(Identifier(name)) for name in whole_times]
    times += [
        SQL("t.{} <= to_timestamp(e.before / 1000.0)").format(Identifier(name))
        for name in timestamps
    ]
    condition = SQL("t.{} = e.device").format(Identifier(device))
    if times:
        condition += SQL(" AND ({})").format(SQL(" OR ").join(times))
    return SQL(
        "DELETE FROM {} AS t USING unnest(%s::text[], %s::bigint[]) AS e (device, before) WHERE {}"
    ).format(table, condition)


def create_erased(table: Identifier) -> Composed:
    """Return what creates the table of the erasures that each task has carried out."""
    return SQL(
        "CREATE TABLE IF NOT EXISTS {} (table_name text, task text, device text, before bigint,"
        " PRIMARY KEY (table_name, task, device))"
    ).format(table)


def select_erased(table: Identifier) -> Composed:
    """Return what reads the erasures of a table's name and a task."""
    return SQL("SELECT device, before FROM {} WHERE table_name = %s AND task = %s").format(table)


def insert_erased(table: Identifier) -> Composed:
    """Return what notes erasures, given a table's name, a task, and arrays as for the deletion."""
    return SQL(
        "INSERT INTO {} (table_name, task, device, before)"
        " SELECT %s, %s, e.device, e.before"
        " FROM unnest(%s::text[], %s::bigint[]) AS e (device, before)"
        " ON CONFLICT (table_name, task, device) DO UPDATE SET before = EXCLUDED.before"
    ).format(table)


def drop_staging(staging: Identifier) -> Composed:
    """Return what removes a table of this session."""
    return SQL("DROP TABLE IF EXISTS {}").format(staging)
