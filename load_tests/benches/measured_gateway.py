"""A gateway for benchmarks that query it."""

from __future__ import annotations

import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from load_tests.own_platform import environment
from waylog.cli import CommandError

_READY_S: Final = 300.0


class MeasuredGateway:
    """`waylog gateway` in front of a log, inside a `with` block; it accepts all users."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._log = folder / "gateway.log"
        self._http = ""
        self._words = [
            *(sys.executable, "-m", "waylog.cli", "gateway", "--bootstrap-servers", servers),
            *("--http", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--open"),
            *("--data", str(folder), "--users", str(folder / "users.db")),
            *("--places", str(folder / "places"), "--history", str(folder / "history")),
        ]

    def __enter__(self) -> MeasuredGateway:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._words, env=environment(), stdout=log, stderr=log)
        deadline = time.monotonic() + _READY_S
        while "gateway ready http=" not in (said := self._log.read_text(errors="replace")):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise CommandError(f"the gateway did not start: {said[-2000:]}")
            time.sleep(0.2)
        self._http = said.partition("gateway ready http=")[2].split()[0]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def get(self, path: str) -> bytes | None:
        """Return the body of a GET, None for 204 and 404; raises CommandError for other errors."""
        connection = HTTPConnection(self._http, timeout=60)
        try:
            connection.request("GET", path, headers={"Authorization": "Basic YmVuY2g6eA=="})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status not in {200, 204, 404}:
            raise CommandError(f"{path}: {answer.status} {content[:200]!r}")
        return content if answer.status == 200 else None
