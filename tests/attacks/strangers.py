"""Programs of other accounts of this machine, which connect to what runs on it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any, Final

import pytest

#: Accounts that nothing else is likely to run as.
STRANGER: Final = 54_321
FRIEND: Final = 54_322

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can start programs as other accounts"
)

#: Reads what to do as JSON, becomes the account and does it. Nothing but the standard library,
#: which is loaded before, since the account may not be able to read it.
_PROGRAM: Final = """
import json, os, socket, ssl, struct, sys
task = json.load(sys.stdin)
if task["uid"]:
    os.setgroups([])
    os.setgid(task["uid"])
    os.setuid(task["uid"])
    assert os.getuid() == os.geteuid() == task["uid"]

def linger(connection, seconds):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))

def attempt(wish):
    connection = socket.socket(wish["family"])
    connection.settimeout(30)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if wish["device"]:
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_BINDTODEVICE, wish["device"].encode() + b"\\0"
        )
    if wish["source"]:
        connection.bind(tuple(wish["source"]))
    ending = wish["ending"]
    if ending == "short FIN_WAIT_2":
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, -1)
    try:
        connection.connect((wish["host"], wish["port"]))
        if wish["tls"]:
            connection = tls.wrap_socket(connection)
        connection.sendall(bytes.fromhex(wish["request"]))
        if ending == "answer":
            received = b""
            while len(received) < 8:
                more = connection.recv(65536)
                if not more:
                    break
                received += more
            connection.close()
            return received.hex()
        if ending == "shut down":
            connection.shutdown(socket.SHUT_WR)
            kept.append(connection)
            return ""
        if ending == "reset":
            linger(connection, 0)
        elif ending == "linger":
            linger(connection, 1)
    except TimeoutError:
        raise
    except OSError:
        pass  # disconnected meanwhile
    connection.close()
    return ""

kept = []
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
print(json.dumps([attempt(wish) for wish in task["wishes"]]))
"""


@dataclass(frozen=True)
class Wish:
    """One connection: a request is sent, and either its answer awaited, or the end comes first."""

    port: int
    request: bytes
    host: str = "127.0.0.1"
    family: int = socket.AF_INET
    #: answer, close, shut down, reset, linger, short FIN_WAIT_2
    ending: str = "answer"
    source: tuple[Any, ...] = ()
    device: str = ""
    #: With TLS, whatever certificate the other end shows.
    tls: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"request": self.request.hex()}


def connect_as(uid: int, *wishes: Wish, space: str = "") -> list[bytes]:
    """What another account is answered: nothing where the connection was closed."""
    done = subprocess.run(
        [*(("ip", "netns", "exec", space) if space else ()), sys.executable, "-I", "-c", _PROGRAM],
        input=json.dumps({"uid": uid, "wishes": [wish.as_json() for wish in wishes]}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    return [bytes.fromhex(answer) for answer in json.loads(done.stdout)]
