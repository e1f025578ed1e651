"""The connection of one task, and the tables of its session that records are copied into."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg.sql import Identifier

from consumers.connect.configuration.password import Password
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.postgresql import statements
from consumers.connect.postgresql.connection_url import shown_address
from consumers.connect.postgresql.failures import Cause, cause_of, error_text, login_is_refused
from consumers.connect.postgresql.table_name import TableName

logger = logging.getLogger(__name__)

#: Tables of the session; of more the oldest is dropped.
_STAGING_TABLES_MAX: Final = 32
_INSUFFICIENT_PRIVILEGE: Final = "42501"

Connection = psycopg.Connection[tuple[Any, ...]]


class Unavailable(Exception):
    """The database cannot be reached, or cannot take anything now; it may later."""


class Database:
    """A connection that is made when it is needed, and anew after it was lost."""

    def __init__(self, parameters: dict[str, str], password: Password | None, name: str) -> None:
        """`name` is what the server shows of the session (`pg_stat_activity`)."""
        self._parameters: Final = parameters
        self._password: Final = password
        self._name: Final = name
        self._connection: Connection | None = None
        self._staging: Final[dict[object, Identifier]] = {}
        self._staging_number = 0
        self._tables_for_refused_rows: tuple[Identifier, Identifier] | None = None
        self._postgis: str | None = None
        self._asked_postgis = False

    @property
    def address(self) -> str:
        """Host, port and database, for messages."""
        return shown_address(self._parameters)

    @property
    def is_connected(self) -> bool:
        """Tell whether there is a connection, which may be broken without anybody knowing."""
        return self._connection is not None

    def connection(self) -> Connection:
        """Return the connection; raises Unavailable, and ConnectException for a refused login."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def close(self) -> None:
        """End the connection; the next one knows nothing of it."""
        connection, self._connection = self._connection, None
        self._staging.clear()
        self._tables_for_refused_rows = None
        self._asked_postgis = False
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    def rollback(self) -> None:
        """End the transaction without effect; a connection that cannot is closed."""
        if self._connection is None:
            return
        try:
            self._connection.rollback()
        except psycopg.Error:
            self.close()

    def failed(self, error: psycopg.Error, doing: str, rights: str) -> Exception:
        """Return what to raise for an error that is about no record, after a roll-back.

        `rights` are those that the role needs for it.
        """
        text = f"PostgreSQL at {self.address}: {doing}: {error_text(error)}"
        if error.sqlstate == _INSUFFICIENT_PRIVILEGE:
            text += f"; the role needs {rights}"
        if cause_of(error) is Cause.AWAY or self._connection is None:
            self.close()
            return Unavailable(text)
        return ConnectException(text)

    def postgis_schema(self) -> str | None:
        """Return the schema that PostGIS is in, None if the database does not have it."""
        if not self._asked_postgis:
            row = self.connection().execute(statements.POSTGIS).fetchone()
            self._postgis = None if row is None else str(row[0])
            self._asked_postgis = True
        return self._postgis

    def staging(
        self, table: TableName, columns: Sequence[str], place: tuple[str, str] | None = None
    ) -> Identifier:
        """Return the table of the session for these columns; it is created in a transaction of its
        own. Raises psycopg.Error.
        """
        wanted = (table, tuple(columns), place)
        found = self._staging.get(wanted)
        if found is None:
            connection = self.connection()
            if len(self._staging) >= _STAGING_TABLES_MAX:
                oldest = next(iter(self._staging))
                connection.execute(statements.drop_staging(self._staging[oldest]))
                del self._staging[oldest]
            self._staging_number += 1
            name = f"waylog_sink_{self._staging_number}"
            connection.execute(
                statements.create_staging(Identifier(name), table.identifier, columns, place)
            )
            connection.commit()
            found = self._staging[wanted] = Identifier("pg_temp", name)
        return found

    def tables_for_refused_rows(self) -> tuple[Identifier, Identifier]:
        """Return the tables of the session for rows as texts, and for those that are refused.

        They are created in a transaction of their own. Raises psycopg.Error.
        """
        found = self._tables_for_refused_rows
        if found is None:
            fields, refused = "waylog_sink_fields", "waylog_sink_refused"
            connection = self.connection()
            connection.execute(statements.create_fields(Identifier(fields)))
            connection.execute(statements.create_refused(Identifier(refused)))
            connection.commit()
            found = Identifier("pg_temp", fields), Identifier("pg_temp", refused)
            self._tables_for_refused_rows = found
        return found

    def forget(self) -> None:
        """Forget the tables of the session, since a table that they are like has changed."""
        self.rollback()
        for each in self._staging.values():
            self.connection().execute(statements.drop_staging(each))
        self._staging.clear()
        self.connection().commit()

    def _connect(self) -> Connection:
        password = {} if self._password is None else {"password": self._password.value}
        try:
            connection = psycopg.connect(
                "",
                prepare_threshold=None,
                client_encoding="utf8",
                **{"application_name": self._name} | self._parameters | password,  # type: ignore[arg-type]
            )
        except psycopg.ProgrammingError as error:
            # A parameter of the URL that libpq does not know.
            raise ConnectException(f"connection.url: {error_text(error)}") from None
        except psycopg.Error as error:
            # psycopg's frames refer to their own error. By these cycles each attempt would keep the
            # records that it was made for, until the garbage collector comes, which is seldom.
            traceback.clear_frames(error.__traceback__)
            text = f"PostgreSQL at {self.address}: {error_text(error)}"
            if login_is_refused(error):
                raise ConnectException(text) from None
            raise Unavailable(text) from None
        try:
            connection.execute(statements.DURABLE_COMMITS)
            connection.execute(statements.UTC_TIMES)
            connection.commit()
        except psycopg.Error as error:
            connection.close()
            raise Unavailable(f"PostgreSQL at {self.address}: {error_text(error)}") from None
        logger.info("connected to PostgreSQL at %s", self.address)
        return connection
