"""Ports for servers that tests stop and start again."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice
from typing import Final

from waylog.config import Endpoint
from waylog.network.free_ports import FreePorts, PortTaken

#: Below the ports that `waylog up` chooses, and those of outgoing connections.
_FIRST: Final = 4_000
_SHARES: Final = 64
_PORTS_EACH: Final = 90


def reserved_ports(count: int) -> list[int]:
    """Return this many different ports of 127.0.0.1 that are free now.

    They belong to this process: tests in other processes use others, also of another checkout and
    while a server is down. They come round again after some tests.
    """
    ports = FreePorts()
    return list(islice(filter(lambda port: _is_free(ports, port), _own_ports()), count))


def _is_free(ports: FreePorts, port: int) -> bool:
    try:
        ports.take(Endpoint("127.0.0.1", port))
    except PortTaken:
        return False
    return True


@cache
def _own_ports() -> Iterator[int]:
    share, lock = _own_share()

    def ports() -> Iterator[int]:
        with lock:
            yield from cycle(range(share, share + _PORTS_EACH))

    return ports()


def _own_share() -> tuple[int, socket.socket]:
    """Return the first port of a share that no other process has, and the socket that holds it."""
    for number in range(_SHARES):
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            # A name in Linux's abstract namespace ends with its process.
            lock.bind(f"\0waylog-tests-ports-{number}")
        except OSError:
            lock.close()
        else:
            return _FIRST + number * _PORTS_EACH, lock
    raise RuntimeError(f"{_SHARES} processes run tests already")
