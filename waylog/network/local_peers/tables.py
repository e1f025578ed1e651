"""Finds the owner of a TCP socket in the kernel's tables, for systems without netlink.

Each look-up reads all sockets of the machine, in a thread; questions that come meanwhile are
answered by the next one. See proc_net_tcp(5).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from waylog.network.local_peers.connection_ends import ConnectionEnds
from waylog.network.local_peers.netlink import SocketOwner
from waylog.process.background import spawn

TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))

_MAPPED_PREFIX: Final = b"\0" * 10 + b"\xff\xff"
#: Attempts for a socket: a table that changes while it is read may leave it out.
_LOOKS: Final = 3

Asked = list[tuple[ConnectionEnds, "asyncio.Future[SocketOwner | None]"]]


def find_owners(
    wanted: Iterable[ConnectionEnds], tables: Iterable[Path] = TABLES
) -> dict[ConnectionEnds, SocketOwner]:
    """Return the peers' sockets that the tables have; raises OSError if none can be read."""
    keys = {key: ends for ends in wanted for key in _keys(ends)}
    found: dict[ConnectionEnds, SocketOwner] = {}
    read = 0
    for table in tables:
        try:
            with table.open("rb") as lines:
                for line in lines:
                    fields = line.split()
                    ends = keys.get((fields[1], fields[2])) if len(fields) > 9 else None
                    if ends is not None:
                        uid, inode = int(fields[7]), int(fields[9])
                        found[ends] = SocketOwner(int(fields[3], 16), uid, inode)
            read += 1
        except FileNotFoundError:
            continue  # a kernel without IPv6
    if not read:
        raise FileNotFoundError("there is no /proc/net/tcp")
    return found


def _keys(ends: ConnectionEnds) -> list[tuple[bytes, bytes]]:
    """Return the local and remote address of the peer's line, for the tables of both families."""
    keys = [(_text(ends.peer, ends.peer_port), _text(ends.own, ends.own_port))]
    if len(ends.peer) == 4:
        peer, own = _MAPPED_PREFIX + ends.peer, _MAPPED_PREFIX + ends.own
        keys.append((_text(peer, ends.peer_port), _text(own, ends.own_port)))
    return keys


def _text(address: bytes, port: int) -> bytes:
    """Format an address as in the tables: words of four bytes in host byte order, and the port."""
    words = (address[at : at + 4] for at in range(0, len(address), 4))
    host = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{host}:{port:04X}".encode()


class SocketTables:
    """Reads the tables for all waiting questions, one read at a time."""

    def __init__(self) -> None:
        """Raises OSError if there are no tables."""
        find_owners(())
        self._loop = asyncio.get_running_loop()
        self._asked: Asked = []
        self._looking: asyncio.Task[None] | None = None

    def peer_of(self, ends: ConnectionEnds) -> asyncio.Future[SocketOwner | None]:
        """Return a future: the peer's socket, None if there is none, or OSError."""
        answer: asyncio.Future[SocketOwner | None] = self._loop.create_future()
        self._asked.append((ends, answer))
        if self._looking is None:
            self._looking = spawn(self._look(), "looking for the owners of sockets")
        return answer

    async def _look(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, []
                await self._look_for(asked)
        finally:
            self._looking = None

    async def _look_for(self, asked: Asked) -> None:
        missing = asked
        try:
            for _ in range(_LOOKS):
                if missing:
                    missing = await self._look_once(missing)
            for _, answer in missing:
                answer.set_result(None)
        finally:
            for _, answer in asked:
                answer.cancel()  # no effect, unless the look-up was not finished

    async def _look_once(self, asked: Asked) -> Asked:
        """Answer the questions that the tables can answer; return the others."""
        try:
            found = await asyncio.to_thread(find_owners, [ends for ends, _ in asked])
        except OSError as error:
            for _, answer in asked:
                answer.set_exception(error)
            return []
        missing: Asked = []
        for ends, answer in asked:
            if ends in found:
                answer.set_result(found[ends])
            else:
                missing.append((ends, answer))
        return missing

    async def close(self) -> None:
        """Cancel all questions."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        for _, answer in self._asked:
            answer.cancel()
