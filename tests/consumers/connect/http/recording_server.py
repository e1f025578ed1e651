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
from typing import Any, Final, NamedTuple

from tests.ports import reserved_ports

_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_REFUSAL: Final = b"HTTP/1.1 422 Unprocessable Content\r\nContent-Length: 7\r\n\r\nno json"
_KEY: Final = b"\r\nidempotency-key:"
_LENGTH: Final = b"\r\ncontent-length:"
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


class _Recording(asyncio.Protocol):
    def __init__(self, file: int) -> None:
        self._file = file
        self._data = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while True:
            head, found, rest = self._data.partition(b"\r\n\r\n")
            if not found:
                return
            names = head.lower()
            length = int(_after(names, _LENGTH))
            if len(rest) < length:
                return
            body, self._data = rest[:length], rest[length:]
            if not body.startswith(b"{"):
                self._transport.write(_REFUSAL)
                continue
            os.write(self._file, b"%b %b\n" % (_after(names, _KEY), body))
            self._transport.write(_ANSWER)


def _after(head: bytes, name: bytes) -> bytes:
    return head.partition(name)[2].split(b"\r", 1)[0].strip() or b"0"


async def _serve(port: int, path: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # A line that the former process has begun is ended.
    os.write(file, b"\n")
    loop = asyncio.get_running_loop()
    deadline = time.monotonic() + _START_S
    while True:
        try:
            server = await loop.create_server(lambda: _Recording(file), "127.0.0.1", port)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2]))
