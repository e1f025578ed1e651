"""Requests of malicious peers, and their cost to a broker."""

from __future__ import annotations

import socket
import struct
import time
import zlib
from collections.abc import Callable
from typing import Final, Self

import google_crc32c
import psutil

from broker_core.protocol.batch_builder import build_batch

_MILLION: Final = b"\xc0\x84\x3d"  # as a varint
_TIMES: Final = 5
LENGTH_MAX: Final = 100 * 1024 * 1024


class Victim:
    """A broker under attack, with measurements of its CPU and memory."""

    def __init__(self, address: tuple[str, int], pid: int) -> None:
        self.address = address
        self._process = psutil.Process(pid)

    @classmethod
    def at(cls, bootstrap_servers: str) -> Self:
        """Return the broker that listens on an address of this machine."""
        host, _, port = bootstrap_servers.rpartition(":")
        (pid,) = {
            connection.pid
            for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == int(port)
        }
        return cls((host, int(port)), pid)

    def cpu_s(self) -> float:
        """Return the CPU seconds used so far."""
        # Linux's CPU clock of a process, see clock_getcpuclockid(3); /proc has only ticks of 10 ms.
        return time.clock_gettime((~self._process.pid << 3) | 2)

    def least_cpu_s(self, annoy: Callable[[], object], enough_s: float) -> float:
        """Return the CPU seconds that `annoy` costs: the least of a few runs.

        Other work on the same cores makes some runs slower; once a run is below `enough_s`, further
        ones would tell nothing new.
        """
        least = float("inf")
        for _ in range(_TIMES):
            before = self.cpu_s()
            annoy()
            least = min(least, self.cpu_s() - before)
            if least < enough_s:
                break
        return least

    def resident_mib(self) -> float:
        """Return the resident memory in MiB."""
        return float(self._process.memory_info().rss) / 1024 / 1024

    def connect(self) -> socket.socket:
        """Open a connection."""
        return socket.create_connection(self.address, timeout=20)

    def tell(self, data: bytes) -> bytes:
        """Send data and return the frame of the answer, b"" if the connection ends first."""
        with self.connect() as connection:
            try:
                connection.sendall(data)
                head = _receive(connection, 4)
                return _receive(connection, int.from_bytes(head, "big")) if head else b""
            except ConnectionError:
                return b""

    def serves(self) -> bool:
        """Return whether a well-behaved client gets an answer."""
        return len(self.tell(frame(header(18, 0)))) > 100


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        data = connection.recv(min(size - len(parts), 1 << 20))
        if not data:
            break
        parts += data
    return bytes(parts)


def header(key: int, version: int) -> bytes:
    """Return the header of a request."""
    return struct.pack(">hhih", key, version, 7, 4) + b"test"


def frame(body: bytes) -> bytes:
    """Return a request with its length in front."""
    return struct.pack(">i", len(body)) + body


def _names(count: int) -> bytes:
    return b"".join(b"\0\x0a" + b"name-%05d" % number for number in range(count))


def requests() -> dict[str, bytes]:
    """Return requests that no honest client sends, by their description."""
    metadata, flexible = header(3, 1), header(3, 9) + b"\0"
    return {
        "longest length": struct.pack(">i", 2**31 - 1),
        "negative length": struct.pack(">i", -1),
        "over the limit": struct.pack(">i", LENGTH_MAX + 1),
        "array of 2^31-1": frame(metadata + struct.pack(">i", 2**31 - 1)),
        "array of -5": frame(metadata + struct.pack(">i", -5)),
        "a million empty names": frame(metadata + struct.pack(">i", 10**6) + b"\0\0" * 10**6),
        "a million tags in the header": frame(header(3, 9) + _MILLION + b"\x05\0" * 10**6),
        "a million tags": frame(flexible + b"\1\0\0\0" + _MILLION + b"\x05\0" * 10**6),
        "endless varint": frame(header(3, 9) + b"\xff" * 100),
        "99,999 names": frame(metadata + struct.pack(">i", 99_999) + _names(99_999)),
        "49,999 names": frame(metadata + struct.pack(">i", 49_999) + _names(49_999)),
    }


def gzip_bomb(mib: int) -> bytes:
    """Return a batch that expands to about a thousand times its size."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeroes = bytes(1 << 20)
    packed = b"".join(packer.compress(zeroes) for _ in range(mib)) + packer.flush()
    batch = bytearray(build_batch([(1, None, b"x", ())])[:61]) + packed
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, 1)
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[21:])))
    return bytes(batch)


def produce(topic: str, batch: bytes) -> bytes:
    """Return a Produce request with one batch for partition 0."""
    body = header(0, 8) + struct.pack(">hhii", -1, -1, 5000, 1)
    body += struct.pack(">h", len(topic)) + topic.encode()
    return frame(body + struct.pack(">iii", 1, 0, len(batch)) + batch)


def announced() -> bytes:
    """Return the head of a frame of the longest allowed length; its body never arrives."""
    return struct.pack(">ihh", LENGTH_MAX, 0, 8)
