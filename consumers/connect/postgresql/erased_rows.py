"""Deletes rows of erased devices, and notes in the database which erasures are done.

Each task notes its own: what another task has written, before it knew of an erasure, that one has
to delete. Without the note each start of a task would look through a table for all devices that
were ever erased.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import psycopg

from consumers.connect.postgresql import statements
from consumers.connect.postgresql.column_types import ColumnKind
from consumers.connect.postgresql.database import Database
from consumers.connect.postgresql.failures import Cause, cause_of, error_text
from consumers.connect.postgresql.properties import Settings
from consumers.connect.postgresql.table_name import TableName
from consumers.connect.postgresql.table_structure import CREATED_MEANWHILE, TableStructure

logger = logging.getLogger(__name__)

#: The table of what is done, in the schema of the table that has the rows.
NOTES: Final = "waylog_erased"


class ErasedRows:
    """The rows of one table; `task` names the task that has written them."""

    def __init__(
        self, settings: Settings, database: Database, structure: TableStructure, task: str
    ) -> None:
        self._settings: Final = settings
        self._database: Final = database
        self._structure: Final = structure
        self._task: Final = task
        self._notes: Final = TableName((*structure.name.parts[:-1], NOTES))
        self._done: dict[str, int] | None = None
        #: Whether the database lets this role keep notes.
        self._keeps_notes = True

    def delete(self, erasures: Mapping[str, int]) -> None:
        """Delete what devices have sent until a time, in ms; raises psycopg.Error, Unavailable."""
        self._structure.forget()
        columns = self._structure.columns()
        name, times = self._settings.erasure_column, self._settings.erasure_time_columns
        if name not in columns or columns[name].kind is not ColumnKind.TEXT:
            return
        kinds = {each: columns[each].kind for each in times if each in columns}
        whole = [each for each, kind in kinds.items() if kind is ColumnKind.WHOLE]
        stamps = [each for each, kind in kinds.items() if kind is ColumnKind.TIMESTAMP]
        if times and not whole and not stamps:
            return
        if self._done is None:
            self._done = self._read_notes()
        done = self._done
        todo = {device: at for device, at in erasures.items() if done.get(device, at - 1) < at}
        if not todo:
            return
        arrays = (list(todo), list(todo.values()))
        connection = self._database.connection()
        deleted = connection.execute(
            statements.delete_erased(self._structure.name.identifier, name, whole, stamps), arrays
        ).rowcount
        if self._keeps_notes:
            connection.execute(
                statements.insert_erased(self._notes.identifier),
                (str(self._structure.name), self._task, *arrays),
            )
        connection.commit()
        self._done |= todo
        logger.info(
            "table %s: %d rows of %d devices were deleted, since these were erased",
            *(self._structure.name, deleted, len(todo)),
        )

    def _read_notes(self) -> dict[str, int]:
        connection = self._database.connection()
        try:
            connection.execute(statements.create_erased(self._notes.identifier))
            rows = connection.execute(
                statements.select_erased(self._notes.identifier),
                (str(self._structure.name), self._task),
            ).fetchall()
            connection.commit()
        except psycopg.Error as error:
            self._database.rollback()
            if error.sqlstate in CREATED_MEANWHILE:
                return self._read_notes()
            if cause_of(error) is not Cause.SET_UP:
                raise
            self._keeps_notes = False
            logger.warning(
                "table %s cannot be made, so that each start of a task looks for the rows of all "
                "erased devices: %s",
                *(self._notes, error_text(error)),
            )
            return {}
        return dict(rows)
