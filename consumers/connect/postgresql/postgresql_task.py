"""The task of PostgreSqlSink: tables by topic, what is tried again, and what is reported."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from consumers.connect.data.exceptions import (
    ConnectException,
    DataException,
    RetriableException,
)
from consumers.connect.data.records import SinkRecord
from consumers.connect.plugins.sink_task import SinkTask
from consumers.connect.postgresql.properties import TASK_NUMBER, TOPIC, Settings
from waylog.extras import install_command, is_installed

if TYPE_CHECKING:
    # They need psycopg, without which a configuration can still be checked.
    from consumers.connect.postgresql.database import Database
    from consumers.connect.postgresql.table_writer import Refusal, TableWriter

logger = logging.getLogger(__name__)

#: Topics come and go where topics.regex has them; of so many tables the oldest is forgotten.
_TABLES_MAX: Final = 256


class PostgreSqlSinkTask(SinkTask):
    """Writes records as they are put, so that nothing waits for a flush."""

    def __init__(self) -> None:
        self._database: Database | None = None
        self._writers: dict[str, TableWriter] = {}
        self._failures = 0
        self._erasures: dict[str, int] = {}

    def start(self, properties: Mapping[str, str]) -> None:
        """Connect, if the database is there; raises ConnectException for a refused login."""
        if not is_installed("postgresql"):
            raise ConnectException(
                f"PostgreSqlSink needs a library: {install_command('postgresql')}"
            )
        from consumers.connect.postgresql.database import Database, Unavailable

        self._settings = Settings.of(properties)
        self._topics = [each.strip() for each in properties.get("topics", "").split(",")]
        self._name = f"{properties.get('name', 'sink')}-{properties.get(TASK_NUMBER, '0')}"
        name = f"waylog-connect {properties.get('name', 'sink')}"
        self._database = Database(self._settings.parameters, self._settings.password, name)
        try:
            self._database.connection()
        except Unavailable as error:
            logger.warning("%s; it is tried again when there are records", error)

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Store records, and report those that the database does not take.

        Raises RetriableException while the database is away, ConnectException for what waiting
        does not cure.
        """
        if not records:
            return
        from consumers.connect.postgresql.database import Unavailable

        assert self._database is not None
        try:
            try:
                was_connected = self._database.is_connected
                refused = self._write(records)
            except Unavailable as error:
                if not was_connected:
                    raise
                # A connection that was idle may be broken for long; a new one may be made at once.
                logger.info("%s; connecting again", error)
                refused = self._write(records)
        except Unavailable as error:
            self._failures += 1
            limit = self._settings.retries_max
            if 0 <= limit < self._failures:
                raise ConnectException(f"{error}; given up after {limit} retries") from error
            self.context.timeout(self._settings.retry_backoff_ms)
            raise RetriableException(str(error)) from error
        self._failures = 0
        self.report(refused)

    def erase(self, erasures: Mapping[str, int]) -> None:
        """Delete the rows of erased devices; raises as `put`."""
        self._erasures |= erasures
        if not self._settings.erasure_column:
            return
        from consumers.connect.postgresql.database import Unavailable

        try:
            for writer in self._known_writers():
                writer.erase(erasures)
        except Unavailable as error:
            raise RetriableException(str(error)) from error

    def stop(self) -> None:
        """Close the connection."""
        if self._database is not None:
            self._database.close()

    def _write(self, records: Sequence[SinkRecord]) -> list[Refusal]:
        by_topic: dict[str, list[SinkRecord]] = {}
        for record in records:
            by_topic.setdefault(record.topic, []).append(record)
        from consumers.connect.postgresql.table_writer import Refusal

        tables: dict[TableWriter, list[SinkRecord]] = {}
        refused: list[Refusal] = []
        for topic, some in by_topic.items():
            try:
                tables.setdefault(self._writer(topic), []).extend(some)
            except DataException as error:
                refused.extend(Refusal(each, error) for each in some)
        for writer, some in tables.items():
            refused.extend(writer.write(some))
        return refused

    def _known_writers(self) -> set[TableWriter]:
        """Return what writes the tables of the topics that the properties name, if there can be
        such tables, and all others so far.
        """
        known = set(self._writers.values())
        for topic in filter(None, self._topics):
            with contextlib.suppress(DataException):
                known.add(self._writer(topic))
        return known

    def _writer(self, topic: str) -> TableWriter:
        """Return what writes the table of a topic; raises DataException if there can be none."""
        from consumers.connect.postgresql.table_name import (
            NAME_BYTES_MAX,
            TableName,
            is_possible_name,
        )
        from consumers.connect.postgresql.table_writer import TableWriter

        parts = tuple(part.replace(TOPIC, topic) for part in self._settings.table)
        text = ".".join(parts)
        writer = self._writers.get(text)
        if writer is None:
            if not all(map(is_possible_name, parts)):
                raise DataException(
                    f"table.name.format: {text} is no name of a table: {NAME_BYTES_MAX} bytes at "
                    "most"
                )
            assert self._database is not None
            writer = TableWriter(self._settings, self._database, TableName(parts), self._name)
            if self._erasures and self._settings.erasure_column:
                # What was written into it before this task began.
                writer.erase(self._erasures)
            if len(self._writers) >= _TABLES_MAX:
                del self._writers[next(iter(self._writers))]
            self._writers[text] = writer
        return writer
