"""A proxy between clients and a broker that holds back what they ask for."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import Counter
from types import TracebackType

from tests.tcp_server import tcp_server

PRODUCE = 0
OFFSET_COMMIT = 8
HEARTBEAT = 12
END_TXN = 26
TXN_OFFSET_COMMIT = 28


class HoldingProxy:
    """Passes requests on; the broker has to advertise the proxy's port."""

    def __init__(self, port: int, target: int) -> None:
        self._port = port
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._passes = asyncio.Event()
        self._passes.set()
        self._stopping = asyncio.Event()
        self._serves = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._held = PRODUCE
        self._containing = b""
        #: Set while a request waits.
        self.is_held = threading.Event()
        #: Set once a request that had to wait is answered.
        self.is_answered = threading.Event()
        #: Requests so far, by the key of their API.
        self.requests: Counter[int] = Counter()
        #: Heartbeats so far whose answer is an error.
        self.refused_heartbeats = 0

    def hold(self, api: int = PRODUCE, containing: bytes = b"") -> None:
        """Let no request to append, or for something else, pass from now on.

        Those that do not contain these bytes pass, as far as nothing on their connection waits.
        """
        self._held, self._containing = api, containing
        self.is_answered.clear()
        self._loop.call_soon_threadsafe(self._passes.clear)

    def release(self) -> None:
        """Let all pass."""
        self._loop.call_soon_threadsafe(self._passes.set)

    def __enter__(self) -> HoldingProxy:
        self._thread.start()
        assert self._serves.wait(60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(60)
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve_all())

    async def _serve_all(self) -> None:
        async with tcp_server(self._serve, self._port):
            self._serves.set()
            await self._stopping.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", self._target)
        waited, heartbeats = set[bytes](), set[bytes]()
        passing = asyncio.create_task(self._answer(answers, writer, waited, heartbeats))
        try:
            while True:
                size, frame = await _frame(reader)
                (api,) = struct.unpack_from(">h", frame)
                self.requests[api] += 1
                if api == HEARTBEAT:
                    heartbeats.add(frame[4:8])
                is_meant = api == self._held and self._containing in frame
                if is_meant and not self._passes.is_set():
                    waited.add(frame[4:8])
                    self.is_held.set()
                    await self._passes.wait()
                    self.is_held.clear()
                requests.write(size + frame)
        except asyncio.IncompleteReadError:
            pass
        finally:
            passing.cancel()
            requests.close()
            await asyncio.gather(passing, return_exceptions=True)

    async def _answer(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        waited: set[bytes],
        heartbeats: set[bytes],
    ) -> None:
        """Pass answers on, given the numbers of requests that have waited, and of heartbeats."""
        try:
            while True:
                size, frame = await _frame(reader)
                writer.write(size + frame)
                if frame[:4] in waited:
                    self.is_answered.set()
                    waited.discard(frame[:4])
                if frame[:4] in heartbeats:
                    heartbeats.discard(frame[:4])
                    # Behind the number and a time is the error (up to version 3, librdkafka's).
                    self.refused_heartbeats += frame[8:10] != bytes(2)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


async def _frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    size = await reader.readexactly(4)
    return size, await reader.readexactly(int.from_bytes(size, "big"))
