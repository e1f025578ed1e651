"""Programs of other accounts of this machine that connect to its services."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Final, Self

import pytest

#: User ids that nothing else is likely to run as.
STRANGER: Final = 54_321
FRIEND: Final = 54_322

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can start programs as other accounts"
)

#: Reads its task as JSON, becomes the account and carries it out. It uses only the standard
#: library, which it loads before, since the account may not be able to read it.
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
    connection.settimeout(60)
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
    """One connection: a request is sent, then its answer awaited or the connection ended."""

    port: int
    request: bytes
    host: str = "127.0.0.1"
    family: int = socket.AF_INET
    #: answer, close, shut down, reset, linger, short FIN_WAIT_2
    ending: str = "answer"
    source: tuple[Any, ...] = ()
    device: str = ""
    #: With TLS; any certificate of the other end is accepted.
    tls: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"request": self.request.hex()}


def connect_as(uid: int, *wishes: Wish, space: str = "") -> list[bytes]:
    """Return the answers that another account gets; empty where the connection was closed."""
    done = subprocess.run(
        [*(("ip", "netns", "exec", space) if space else ()), sys.executable, "-I", "-c", _PROGRAM],
        input=json.dumps({"uid": uid, "wishes": [wish.as_json() for wish in wishes]}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    return [bytes.fromhex(answer) for answer in json.loads(done.stdout)]


#: Tries again and again to listen on ports, in every way, until its standard input ends.
_SQUATTER: Final = """
import itertools, json, os, select, socket, sys
task = json.loads(sys.stdin.readline())
os.setgroups([])
os.setgid(task["uid"])
os.setuid(task["uid"])
hosts = {"127.0.0.1": socket.AF_INET, "0.0.0.0": socket.AF_INET, "::": socket.AF_INET6}
if os.path.exists("/proc/net/if_inet6"):
    hosts["::1"] = socket.AF_INET6
ways = list(itertools.product(hosts, task["ports"], (0, 1), (0, 1)))
rounds, taken = 0, {}
while True:
    for host, port, address, share in ways:
        attempt = socket.socket(hosts[host])
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, address)
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, share)
        if host == "::":
            attempt.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            attempt.bind((host, port))
        except OSError:
            attempt.close()
        else:
            taken[f"{host} {port} {address} {share}"] = attempt
    rounds += 1
    if rounds == 1:
        print("tries", flush=True)
    if select.select([sys.stdin], [], [], 0.01)[0]:
        break
print(json.dumps([rounds, sorted(taken)]))
"""


class Squatter:
    """A program of another account that tries to get ports as soon as they are free."""

    def __init__(self, uid: int, ports: list[int]) -> None:
        """Start the program; return when it has tried all ports once."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _SQUATTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"uid": uid, "ports": ports}) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "tries\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def stop(self) -> list[str]:
        """Return the ports that it has got: host, port, and how it asked."""
        printed, _ = self._process.communicate(timeout=60)
        rounds, taken = json.loads(printed)
        assert rounds > 0
        return list(taken)


#: Keeps idle connections open until its standard input ends.
_IDLER: Final = """
import json, os, select, socket, sys
task = json.loads(sys.stdin.readline())
os.setgroups([])
os.setgid(task["uid"])
os.setuid(task["uid"])
kept = []
for port in task["ports"]:
    for _ in range(task["count"]):
        connection = socket.socket()
        connection.settimeout(task["timeout_s"])
        try:
            connection.connect((task["host"], port))
            connection.sendall(bytes.fromhex(task["request"]))
        except OSError:
            connection.close()
        else:
            kept.append(connection)
print("connected", flush=True)
sys.stdin.read()
for connection in kept:
    connection.setblocking(False)

def is_open(connection):
    try:
        while received := connection.recv(65536):
            pass
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False

print(sum(map(is_open, kept)))
"""


class Idler:
    """A program of another account that opens a number of connections, and waits."""

    def __init__(
        self,
        uid: int,
        ports: list[int],
        count: int,
        *,
        host: str = "127.0.0.1",
        request: bytes = b"",
        timeout_s: float = 5.0,
    ) -> None:
        """Start the program; return after `count` attempts at each port, with `request` sent."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _IDLER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        task = {
            "uid": uid,
            "ports": ports,
            "count": count,
            "host": host,
            "request": request.hex(),
            "timeout_s": timeout_s,
        }
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "connected\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def stop(self) -> int:
        """Return how many of its connections were still open at the end."""
        printed, _ = self._process.communicate(timeout=60)
        return int(printed)
