"""Checks before the first fix whether the target of a replay can be reached.

Later on, the replay waits for a platform that is away, as a phone would; but a wrong port should
be reported at once.
"""

from __future__ import annotations

import argparse
import socket
from typing import Final
from urllib.parse import urlsplit

from waylog.cli import CommandError
from waylog.config import ConfigError, Endpoint, parse_endpoint

_REACH_S: Final = 3.0
_PORTS: Final = {"http": 80, "https": 443}


def gateway_url(text: str) -> str:
    """Return the URL of a gateway, with http:// as the default scheme; raises ConfigError."""
    url = text if "://" in text else f"http://{text}"
    try:
        address = urlsplit(url)
        good = address.scheme in _PORTS and bool(address.hostname) and address.port != 0
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"--gateway {text}: http://HOST:PORT is expected")
    return url


def reach_target(arguments: argparse.Namespace) -> None:
    """Raise CommandError unless the target of the replay accepts connections.

    Raises ConfigError for a log whose values are sealed with a key that is not here.
    """
    if arguments.via == "kafka":
        from waylog.kafka.clients import LogUnreachable
        from waylog.kafka.reach import connect_admin
        from waylog.sealing.sealing import check_writer_has_key

        try:
            connect_admin(arguments.bootstrap_servers, client_id="waylog-replay")
            check_writer_has_key(arguments.bootstrap_servers)
        except LogUnreachable as error:
            raise CommandError(str(error)) from None
    elif arguments.via == "mqtt":
        _connect(parse_endpoint(arguments.mqtt), "--mqtt")
    else:
        address = urlsplit(gateway_url(arguments.gateway))
        port = address.port or _PORTS[address.scheme]
        _connect(Endpoint(address.hostname or "", port), "--gateway")


def _connect(endpoint: Endpoint, option: str) -> None:
    try:
        socket.create_connection((endpoint.host, endpoint.port), _REACH_S).close()
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise CommandError(
            f"nobody can be reached at {endpoint} ({reason.lower()}): is `waylog up` running "
            f"there? {option} names another address"
        ) from None
