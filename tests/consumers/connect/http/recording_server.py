"""An HTTP server in a process of its own, which notes what it gets in a file before it answers.

    python -m tests.consumers.connect.http.recording_server PORT FILE

A line has the idempotency key and the body; what is noted outlives a kill -9 of the server.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from load_tests.plain_http import OK, PlainHttp, header
from tests.ports import reserved_ports

_REFUSAL: Final = b"HTTP/1.1 422 Unprocessable Content\r\nContent-Length: 7\r\n\r\nno json"
_START_S: Final = 30.0


class Recorded(NamedTuple):
    """A request that was noted."""

    key: str
    body: str


class RecordingServer:
    """The process; it may be killed and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = reserved_ports(1)
        self.url = f"http://127.0.0.1:{self.port}/in"
        self._path = folder / "requests.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it listens."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self.port), str(self._path)],
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"listening\n"

    def kill(self) -> None:
        """Kill the server (SIGKILL), if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def requests(self) -> list[Recorded]:
        """Return all requests so far; a line that a kill has cut off is none."""
        if not self._path.exists():
            return []
        lines = self._path.read_text().split("\n")[:-1]
        return [Recorded(*line.split(" ", 1)) for line in lines if " " in line]


async def _serve(port: int, path: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # A line that the former process has begun is ended.
    os.write(file, b"\n")

    def answer(head: bytes, body: bytes) -> bytes:
        if not body.startswith(b"{"):
            return _REFUSAL
        os.write(file, b"%b %b\n" % (header(head, b"idempotency-key") or b"0", body))
        return OK

    loop = asyncio.get_running_loop()
    deadline = time.monotonic() + _START_S
    while True:
        try:
            server = await loop.create_server(lambda: PlainHttp(answer), "127.0.0.1", port)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2]))
