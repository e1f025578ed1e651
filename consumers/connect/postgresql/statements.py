"""The statements; names are quoted by psycopg, and no value is part of any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from consumers.connect.postgresql.failures import NOT_OF_A_ROW
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
#: A time without a zone is one of UTC, whatever the server and the role have.
UTC_TIMES: Final = SQL("SET TIME ZONE 'UTC'")
CHECK_AT_ONCE: Final = SQL("SET CONSTRAINTS ALL IMMEDIATE")


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

    Its columns have the types of the target's, but no constraints, and there is one more for a
    row's number. `place` is the column that is a geometry, and the schema of PostGIS: its points
    are not of the target's system yet.
    """
    selected = [
        SQL("NULL::{} AS {}").format(Identifier(place[1], "geometry"), Identifier(name))
        if place is not None and name == place[0]
        else Identifier(name)
        for name in columns
    ]
    selected.append(SQL("NULL::integer AS {}").format(_number(columns)))
    return SQL(
        "CREATE TEMPORARY TABLE {} ON COMMIT DELETE ROWS AS SELECT {} FROM {} WITH NO DATA"
    ).format(staging, SQL(", ").join(selected), table)


def _number(columns: Sequence[str]) -> Identifier:
    """Return the name of the column for a row's number in a table of this session."""
    name = "number"
    while name in columns:
        name += "_"
    return Identifier(name)


def copy_into(staging: Identifier, columns: Sequence[str]) -> Composed:
    """Return what copies rows into the table of this session."""
    return SQL("COPY {} ({}) FROM STDIN").format(staging, column_list(columns))


def merge(
    source: Composable,
    table: Identifier,
    columns: Sequence[str],
    key: Sequence[str],
    place: tuple[str, str, int] | None,
    *,
    is_upsert: bool,
) -> Composed:
    """Return what moves rows of a table, or of a query in brackets, into the table.

    They are moved in the order of their keys: tasks that write the same ones wait for each other's
    rows, and none of them for one that waits for it. Without `is_upsert` rows stay as they are
    whose key is there. `place` is the column that is a geometry, the schema of PostGIS and the
    reference system that its points are transformed into.
    """
    selected = [
        SQL("{}({}, {})").format(
            Identifier(place[1], "st_transform"), Identifier(name), Literal(place[2])
        )
        if place is not None and name == place[0]
        else Identifier(name)
        for name in columns
    ]
    statement = SQL("INSERT INTO {} ({}) SELECT {} FROM {} AS s").format(
        table, column_list(columns), SQL(", ").join(selected), source
    )
    if not key:
        return statement
    statement += SQL(" ORDER BY {}").format(column_list(key))
    others = [name for name in columns if name not in key]
    if not is_upsert or not others:
        return statement + SQL(" ON CONFLICT ({}) DO NOTHING").format(column_list(key))
    updates = SQL(", ").join(SQL("{0} = EXCLUDED.{0}").format(Identifier(name)) for name in others)
    return statement + SQL(" ON CONFLICT ({}) DO UPDATE SET {}").format(column_list(key), updates)


def delete(source: Composable, table: Identifier, key: Sequence[str]) -> Composed:
    """Return what deletes the rows whose keys a table has, or a query in brackets.

    They are locked in the order of their keys before, as `merge` locks them.
    """
    same = SQL(" AND ").join(SQL("t.{0} = s.{0}").format(Identifier(name)) for name in key)
    order = SQL(", ").join(SQL("t.{}").format(Identifier(name)) for name in key)
    return SQL(
        "WITH locked AS MATERIALIZED (SELECT 1 FROM {0} AS t JOIN {1} AS s ON {2} ORDER BY {3}"
        " FOR UPDATE OF t), counted AS MATERIALIZED (SELECT count(*) AS n FROM locked)"
        " DELETE FROM {0} AS t USING {1} AS s, counted WHERE {2} AND counted.n >= 0"
    ).format(table, source, same, order)


#: A row of a table of this session, for `merge` and `delete`: `one_by_one` has it in a variable.
ONE_ROW: Final = SQL("(SELECT (staged).*)")
_ONE_BY_ONE: Final = SQL("""
#variable_conflict use_column
DECLARE
    entry record;
    staged {staging};
    failed_column text;
BEGIN
    FOR entry IN SELECT number, fields FROM {fields} LOOP
        BEGIN
            {assignments}
        EXCEPTION WHEN OTHERS THEN
            IF SQLSTATE ~ {others} THEN RAISE; END IF;
            INSERT INTO {refused} VALUES (entry.number, SQLSTATE, SQLERRM, failed_column);
            CONTINUE;
        END;
        staged.{number} := entry.number;
        INSERT INTO {staging} SELECT (staged).*;
    END LOOP;
    BEGIN
        {all};
        RETURN;
    EXCEPTION WHEN OTHERS THEN
        IF SQLSTATE ~ {others} THEN RAISE; END IF;
    END;
    FOR staged IN SELECT * FROM {staging} ORDER BY {order} LOOP
        BEGIN
            {each};
        EXCEPTION WHEN OTHERS THEN
            IF SQLSTATE ~ {others} THEN RAISE; END IF;
            GET STACKED DIAGNOSTICS failed_column = COLUMN_NAME;
            INSERT INTO {refused} VALUES (staged.{number}, SQLSTATE, SQLERRM, failed_column);
        END;
    END LOOP;
END
""")


def one_by_one(
    staging: Identifier,
    tables: tuple[Identifier, Identifier],
    columns: Sequence[str],
    key: Sequence[str],
    all_rows: Composed,
    one_row: Composed,
) -> Composed:
    """Return what stores rows that were copied as texts, and notes those that cannot be.

    `tables` are those of `create_fields` and `create_refused`. Rows are converted one by one, as
    COPY converts them, into the table of this session. `all_rows` is carried out with all that are
    there then; if that fails, `one_row` is with each of them, in the order of their keys. Errors
    that are about no row end all of it.
    """
    fields, refused = tables
    number = _number(columns)
    assignments = [
        SQL("failed_column := {}; staged.{} := entry.fields ->> {};").format(
            Literal(name), Identifier(name), Literal(index)
        )
        for index, name in enumerate(columns)
    ]
    block = _ONE_BY_ONE.format(
        staging=staging,
        fields=fields,
        refused=refused,
        number=number,
        assignments=SQL(" ").join(assignments),
        all=all_rows,
        each=one_row,
        order=column_list(key) if key else number,
        others=Literal(f"^({'|'.join(NOT_OF_A_ROW)})"),
    )
    return SQL("DO {}").format(Literal(block.as_string()))


def create_fields(fields: Identifier) -> Composed:
    """Return what creates the table of this session for rows as arrays of texts."""
    return SQL(
        "CREATE TEMPORARY TABLE {} (number integer, fields jsonb) ON COMMIT DELETE ROWS"
    ).format(fields)


def copy_fields(fields: Identifier) -> Composed:
    """Return what copies rows as texts."""
    return SQL("COPY {} (number, fields) FROM STDIN").format(fields)


def create_refused(refused: Identifier) -> Composed:
    """Return what creates the table of this session for rows that are refused."""
    return SQL(
        "CREATE TEMPORARY TABLE {} (number integer, code text, message text, failed_column text)"
        " ON COMMIT DELETE ROWS"
    ).format(refused)


def select_refused(refused: Identifier) -> Composed:
    """Return what reads them: number, code, message, column."""
    return SQL("SELECT number, code, message, failed_column FROM {}").format(refused)


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
