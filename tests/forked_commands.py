"""Short `waylog` commands in processes of their own, without the imports of each.

Most of what a short command takes is imports. Here one process imports the modules of the commands,
and is forked for each: a command still has its own streams, folder, environment, threads and exit
status, and its process waits for its threads as any other. What it does not do is to take the
interpreter apart at the end, which takes as long as the imports.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from tests.environments import own_environment

ROOT: Final = Path(__file__).resolve().parents[1]


class Ended(NamedTuple):
    """The exit status and the output of a command; status None means that it did not end."""

    status: int | None
    stdout: str
    stderr: str


class ForkedCommands:
    """Runs commands; safe to call from several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._lock = threading.Lock()

    def run(
        self,
        *words: str,
        stdin: str = "",
        cwd: Path = ROOT,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 60,
    ) -> Ended:
        """Run `waylog` with these words until it ends, or kill it after `timeout_s`."""
        with self._lock:
            self._number += 1
            streams = self._folder / str(self._number)
        streams.mkdir()
        (streams / "stdin").write_text(stdin)
        request = {
            "words": words,
            "streams": str(streams),
            "cwd": str(cwd),
            "environment": own_environment() if environment is None else dict(environment),
        }
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._folder / "socket"))
            with connection.makefile("rw", encoding="utf-8") as file:
                file.write(json.dumps(request) + "\n")
                file.flush()
                pid = int(file.readline())
                connection.settimeout(timeout_s)
                status: int | None
                try:
                    status = int(file.readline())
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    status = None
        return Ended(status, (streams / "stdout").read_text(), (streams / "stderr").read_text())


@contextmanager
def forked_commands(folder: Path, *modules: str) -> Iterator[ForkedCommands]:
    """Run commands that are forked from a process which has imported `modules`.

    The streams of the commands are files in `folder`.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked_commands", str(listener.fileno()), *modules],
            cwd=ROOT,
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
        )
    try:
        yield ForkedCommands(folder)
    finally:
        process.communicate(timeout=60)


def _request_in_a_fork(listener: socket.socket) -> dict[str, Any]:
    """Accept connections; return the request of each in a process of its own.

    Ends this process when its standard input ends, which it does with the tests, however they end.
    """
    while True:
        readable, _, _ = select.select([listener.fileno(), 0], [], [])
        if 0 in readable:
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() != 0:
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with connection, connection.makefile("rw", encoding="utf-8") as file:
            request: dict[str, Any] = json.loads(file.readline())
            pid = os.fork()
            if pid != 0:
                _tell_its_end(pid, file)
        return request


def _tell_its_end(pid: int, file: Any) -> NoReturn:
    with suppress(OSError):  # who has asked may have gone
        print(pid, file=file, flush=True)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        print(os.waitstatus_to_exitcode(status), file=file, flush=True)
    os._exit(0)


def _main() -> None:
    for module in sys.argv[2:]:
        importlib.import_module(module)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork would leave threads behind"
    gc.freeze()  # a collection would copy the pages of all these objects
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for a command
    request = _request_in_a_fork(socket.socket(fileno=int(sys.argv[1])))
    streams = Path(request["streams"])
    for number, name, flags in (
        (0, "stdin", os.O_RDONLY),
        (1, "stdout", os.O_WRONLY | os.O_CREAT),
        (2, "stderr", os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(streams / name, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["waylog", *request["words"]]
    statuses = [1]  # that of an exception which is not caught
    # The first of these functions is called last, after the end of all threads.
    atexit.register(_leave, statuses)
    from waylog.cli import main

    try:
        statuses.append(main())
    except SystemExit as exited:
        statuses.append(exited.code if isinstance(exited.code, int) else 1)


def _leave(statuses: list[int]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(statuses[-1])


if __name__ == "__main__":
    _main()
