"""What sinks write to while they are measured: PostgreSQL, and an HTTP server that answers 200."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ctypes import c_long
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import uvloop

from load_tests.plain_http import OK, PlainHttp
from waylog.network.free_ports import free_ports

_USER: Final = "waylog"
_ID: Final = re.compile(rb'"id":"([^"]*)"')


class PostgresProcess:
    """A PostgreSQL with its files in a folder of its own."""

    def __init__(self, control: tuple[str, ...], options: str, folder: Path, account: Any) -> None:
        self._control: Final = control
        self._options: Final = options
        self._folder: Final = folder
        self._account: Final = account
        self.url = ""

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        self.run(*self._control, "-l", str(self._folder / "log"), "-o", self._options, "start")

    def stop(self) -> None:
        """Stop the server, ending its sessions."""
        self.run(*self._control, "-m", "fast", "stop")

    def run(self, *words: str) -> None:
        """Run one of its programs, in its account."""
        subprocess.run(
            words, check=True, stdout=subprocess.DEVNULL, cwd=self._folder, **self._account
        )


def postgres_programs() -> Path | None:
    """Return the folder with the programs of PostgreSQL; None if it is not installed."""
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


@contextmanager
def postgres_process() -> Iterator[PostgresProcess]:
    """Run a PostgreSQL; its files are gone at the end."""
    programs = postgres_programs()
    if programs is None:
        raise SystemExit("needs PostgreSQL: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="waylog-postgres-"))
    account: dict[str, Any] = {}
    if os.geteuid() == 0:  # it refuses to run as root
        found = pwd.getpwnam("postgres")
        account = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
        os.chown(folder, found.pw_uid, found.pw_gid)
    (port,) = free_ports(1)
    data = folder / "data"
    server = PostgresProcess(
        (str(programs / "pg_ctl"), "-D", str(data), "-w"),
        f"-p {port} -k {folder} -c listen_addresses=127.0.0.1",
        folder,
        account,
    )
    server.url = f"postgresql://{_USER}@127.0.0.1:{port}/postgres"
    server.run(str(programs / "initdb"), "-D", str(data), "-U", _USER, "--auth=trust", "-E", "UTF8")
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


class AnsweringServer:
    """Answers 200 to everything, as cheaply as Python does: the machine has two processors."""

    def __init__(self, ids: Path | None = None) -> None:
        """`ids` is a file for the ids of the records in the bodies, a line each."""
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}"
        self._context: Final = multiprocessing.get_context("spawn")
        self._requests = self._context.Value(c_long, 0)
        self._ids: Final = ids
        self._process: BaseProcess | None = None

    @property
    def requests(self) -> int:
        """The requests that were answered."""
        return int(self._requests.value)

    def start(self) -> None:
        """Start the server's process."""
        arguments = (self._port, self._requests, self._ids)
        self._process = self._context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()

    def freeze(self) -> None:
        """Have connections accepted and nothing answered, until `thaw`."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after `freeze`."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the server's process; connections are refused from then on."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        assert self._process.pid is not None
        os.kill(self._process.pid, number)


@contextmanager
def answering_server(ids: Path | None = None) -> Iterator[AnsweringServer]:
    """Run an HTTP server; see AnsweringServer."""
    server = AnsweringServer(ids)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _serve(port: int, requests: Any, ids: Path | None) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        # Not buffered: what was answered is in the file when this process is killed.
        file = None if ids is None else stack.enter_context(ids.open("ab", buffering=0))

        def answer(_: bytes, body: bytes) -> bytes:
            requests.value += 1
            if file is not None:
                file.write(b"".join(b"%b\n" % each for each in _ID.findall(body)))
            return OK

        server = await loop.create_server(lambda: PlainHttp(answer), "127.0.0.1", port)
        await server.serve_forever()

    with ExitStack() as stack:
        uvloop.run(serve())
