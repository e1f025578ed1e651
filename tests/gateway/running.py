"""A gateway in its own process, on a real broker."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import aiohttp
from confluent_kafka import Producer

from gateway.users.database import UserStore
from tests.consumers.running import WAYLOG, Process
from tests.http_session import http_session
from tests.ports import reserved_ports
from waylog.kafka.clients import producer_config
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.messages import Address, encode

T = TypeVar("T")
#: Seconds for what a gateway does soon, on a machine that has much else to do.
WAIT_S = 60.0


class Login(NamedTuple):
    """A user's name and token."""

    name: str
    token: str


class Gateway:
    """`waylog gateway`, its users, and the log behind it."""

    def __init__(
        self,
        folder: Path,
        bootstrap_servers: str,
        *options: str,
        http: str | None = None,
        program: Sequence[str] = WAYLOG,
    ) -> None:
        self.folder = folder
        self.bootstrap_servers = bootstrap_servers
        self._options = options
        self._program = program
        self.http = http or f"127.0.0.1:{reserved_ports(1)[0]}"
        self.users = UserStore(folder / "users.db")
        self.start()

    @property
    def url(self) -> str:
        return f"http://{self.http}"

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.http.rpartition(":")
        return host, int(port)

    def start(self) -> None:
        """Start on the same port as before, and wait until it serves."""
        self.process = Process(
            *("gateway", "--bootstrap-servers", self.bootstrap_servers, "--http", self.http),
            *("--mqtt", "none", "--data", str(self.folder), *self._options),
            program=self._program,
        )
        self.http = self.process.wait_for(r"gateway ready http=(\S+)").group(1)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.stop(signal.SIGKILL)

    def close(self) -> None:
        """Stop it cleanly; its exit status must be 0."""
        status = self.process.stop()
        self.users.close()
        assert status == 0, self.process.output

    def user(self, name: str, *, admin: bool = False) -> Login:
        """Add a user and return its credentials."""
        token = self.users.add(name, admin=admin)
        assert token is not None
        return Login(name, token)

    @cached_property
    def admin(self) -> Login:
        """Return the credentials of an administrator."""
        return self.user("admin", admin=True)

    def client(
        self, login: Login | None = None
    ) -> AbstractAsyncContextManager[aiohttp.ClientSession]:
        """Return a client that sends these credentials with every request."""
        headers = {}
        if login is not None:
            headers["Authorization"] = aiohttp.encode_basic_auth(*login)
        return http_session(self.url, headers=headers, timeout=aiohttp.ClientTimeout(total=60))

    def records(self, topic: str) -> list[tuple[bytes | None, bytes]]:
        """Return key and value of all committed records in a topic now."""
        found = read_topic(self.bootstrap_servers, topic)
        return [(each.key(), each.value() or b"") for each in found]

    def publish(self, *addresses: Address) -> None:
        """Write to topic `address`, as a resolver does."""
        producer = Producer(producer_config(self.bootstrap_servers, "test", linger_ms=0))
        for address in addresses:
            producer.produce("address", encode(address), address.device.encode())
        assert producer.flush(60) == 0


async def answered(ask: Callable[[], Awaitable[T]], is_wanted: Callable[[T], object] = bool) -> T:
    """Ask until the answer is what is wanted, and return it; the test fails with the last one."""
    deadline = time.monotonic() + WAIT_S
    while not is_wanted(answer := await ask()):
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.02)
    return answer


async def places_of(client: aiohttp.ClientSession, device: str) -> list[dict[str, Any]]:
    """Return a device's places, once they have been read.

    A busy machine needs longer than a question waits; they are read on behind it.
    """

    async def ask() -> Any:
        answer = await client.get(f"/v1/devices/{quote(device, safe='')}/places")
        return None if answer.status == 503 else await json_of(answer)

    found: list[dict[str, Any]] = await answered(ask, lambda found: found is not None)
    return found


async def json_of(answer: aiohttp.ClientResponse, status: int = 200) -> Any:
    """Return the body of a response, which must have this status."""
    body = await answer.text()
    assert answer.status == status, body
    return await answer.json()
