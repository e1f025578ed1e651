"""A PostgreSQL of its own in a temporary folder, which tests stop, kill and start again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from tests.ports import reserved_ports

PASSWORD: Final = "geheim-und-lang-4711"
USER: Final = "waylog"
_PLACES: Final = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin")
#: PostgreSQL refuses to run as root.
_ACCOUNTS: Final = ("postgres", "nobody")
_START_S: Final = 60.0


def programs() -> Path:
    """Return the folder with initdb and pg_ctl; skips the test where there is none."""
    found = [
        each
        for place in _PLACES
        for each in Path("/").glob(place[1:])
        if (each / "initdb").exists()
    ]
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).parent
    if not found:
        pytest.skip("needs PostgreSQL: apt-get install postgresql (and postgresql-15-postgis-3)")
    return max(found)


def _account() -> dict[str, Any]:
    """Return the arguments of Popen for an account that may run PostgreSQL."""
    if os.geteuid() != 0:
        return {}
    for name in _ACCOUNTS:
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    pytest.skip("needs an account postgres or nobody: PostgreSQL does not run as root")


class PostgresServer:
    """A server on a port of 127.0.0.1 and a Unix socket in its folder.

    Over TCP it wants a password, over the socket none.
    """

    def __init__(self) -> None:
        self._programs: Final = programs()
        self._account: Final = _account()
        # pytest's folders may be entered by the account of the tests only.
        self.folder: Final = Path(tempfile.mkdtemp(prefix="waylog-postgres-"))
        self._data: Final = self.folder / "data"
        (self.port,) = reserved_ports(1)
        if self._account:
            os.chown(self.folder, self._account["user"], self._account["group"])
        password = self.folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self._run(
            *("initdb", "-D", str(self._data), "-U", USER, "--pwfile", str(password), "-E", "UTF8"),
            *("--no-locale", "--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync"),
        )
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write(
                f"listen_addresses = '127.0.0.1'\nport = {self.port}\n"
                f"unix_socket_directories = '{self.folder}'\n"
                # The machine does not crash in these tests, only the server does.
                "fsync = off\nmax_connections = 30\nlog_statement = 'ddl'\n"
            )

    @property
    def url(self) -> str:
        """The URL of the database, without the password."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    @property
    def log(self) -> str:
        """What the server has logged."""
        return (self.folder / "log").read_text()

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        self._control("start", "-w", "-t", "60", "-l", str(self.folder / "log"))

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; `mode` immediate is as a crash, what is committed is kept."""
        self._control("stop", "-w", "-t", "60", "-m", mode)

    def kill(self) -> None:
        """Kill the server's first process (SIGKILL); the others end by themselves."""
        pid = int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(pid, signal.SIGKILL)

    def kill_a_session(self) -> None:
        """Kill a process that serves a client (SIGKILL): the server ends all, and recovers."""
        found = self.query(
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'waylog-connect%' LIMIT 1"
        )
        for (pid,) in found:
            os.kill(pid, signal.SIGKILL)

    def start_again(self) -> None:
        """Start the server after `kill`, once what is left of it has ended."""
        deadline = time.monotonic() + _START_S
        while True:
            try:
                self.start()
                return
            except AssertionError:
                if time.monotonic() > deadline:
                    raise

    def remove(self) -> None:
        """Stop the server if it runs, and remove its files."""
        if (self._data / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.folder)

    def connect(self) -> psycopg.Connection[Any]:
        """Return a connection without transactions, by the socket."""
        return psycopg.connect(
            host=str(self.folder), port=self.port, user=USER, dbname="postgres", autocommit=True
        )

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.connect() as connection:
            found = connection.execute(statement.encode(), values or None)
            return found.fetchall() if found.description is not None else []

    def add_postgis(self) -> None:
        """Add PostGIS to the database; skips the test where there is none."""
        try:
            self.query("CREATE EXTENSION postgis")
        except (psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFile):
            pytest.skip("needs PostGIS: apt-get install postgresql-15-postgis-3")

    def count(self, table: str) -> int:
        """Return the rows that a table has, 0 if it does not exist."""
        try:
            return int(self.query(f'SELECT count(*) FROM "{table}"')[0][0])
        except psycopg.errors.UndefinedTable:
            return 0

    def _control(self, *words: str) -> None:
        self._run("pg_ctl", "-D", str(self._data), *words)

    def _run(self, program: str, *words: str) -> None:
        # pg_ctl's server would keep a pipe open.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [str(self._programs / program), *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                check=False,
                timeout=120,
                **self._account,
            )
            if done.returncode:
                output.seek(0)
                raise AssertionError(f"{program}: {output.read().decode()}")
