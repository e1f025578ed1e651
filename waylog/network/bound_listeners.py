"""Listening sockets on all addresses of an endpoint, for HTTP servers of aiohttp."""

from __future__ import annotations

import socket
from typing import NamedTuple

from waylog.config import Endpoint
from waylog.network.bind_addresses import BACKLOG, bind_addresses
from waylog.network.free_ports import bound_socket


class Listener(NamedTuple):
    """Bound sockets of one endpoint."""

    endpoint: Endpoint  # as it is reached: with the port that the system chose
    sockets: list[socket.socket]


def bind(endpoint: Endpoint, *, shared: bool = False) -> Listener:
    """Bind the addresses of a listener; raises OSError that names it.

    With `shared` other sockets of this account that share the port may listen (SO_REUSEPORT).
    """
    sockets: list[socket.socket] = []
    port = endpoint.port
    try:
        for address in bind_addresses(endpoint):
            each = bound_socket(Endpoint(address, port), shared=shared)
            sockets.append(each)
            port = each.getsockname()[1]
            each.listen(BACKLOG)
            each.setblocking(False)
    except OSError as error:
        for each in sockets:
            each.close()
        where = Endpoint(endpoint.host or "*", port)
        raise OSError(error.errno, f"cannot listen on {where}: {error.strerror}") from error
    return Listener(Endpoint(endpoint.host, port), sockets)
