"""Trailer fields of one client's request do not become header fields of another client's.

Proxies may send the requests of several clients over one connection, and pass trailers on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.consumers.running import Broker
from tests.gateway.running import Gateway, Login

#: Requests with chunks, up to the last one: method, target, fields, body.
FIRST = (
    ("POST", "/v1/positions", "Authorization: Bearer {attacker}", '{"lat":3,"lon":4}'),
    ("POST", "/v1/positions", "Authorization: Bearer nobody's", '{"lat":3,"lon":4}'),
    ("POST", "/v1/positions", "X-Nothing: 1", ""),
    ("POST", "/v1/positions", "Authorization: Bearer {attacker}", "not JSON"),
    ("POST", "/owntracks?u=x&d=y", "Authorization: Bearer {attacker}", '{"_type":"lwt"}'),
    ("POST", "/pub", "X-Nothing: 1", '{"_type":"lwt"}'),
    ("POST", "/v1/devices", "X-Nothing: 1", "x"),
    ("POST", "/nowhere", "X-Nothing: 1", "x"),
    ("POST", "/v1/session", "X-Nothing: 1", "{}"),
    ("POST", "/v1/positions", "Expect: the-unexpected", "x"),
    ("POST", "/v1/positions", "Content-Encoding: br", "x"),
    ("GET", "/healthz", "X-Nothing: 1", ""),
    ("GET", "/readyz", "X-Nothing: 1", ""),
    ("GET", "/", "X-Nothing: 1", ""),
    ("GET", "/openapi.json", "X-Nothing: 1", ""),
    ("GET", "/static/js/app.js", "X-Nothing: 1", ""),
    ("GET", "/v1/devices", "Authorization: Bearer {attacker}", ""),
    ("GET", "/metrics", "X-Nothing: 1", ""),
    ("GET", "/topics", "Authorization: Bearer {attacker}", ""),
    ("GET", "/reverse?lat=1&lon=2", "Authorization: Bearer {attacker}", ""),
    ("GET", "/mqtt", "X-Nothing: 1", ""),
    ("GET", "/v1/ws", "Authorization: Bearer {attacker}", ""),
    ("OPTIONS", "/v1/positions", "X-Nothing: 1", "x"),
    ("HEAD", "/healthz", "X-Nothing: 1", ""),
)
TRAILERS = (
    ("Authorization: Bearer {attacker}",),
    ("X-More: 1", "Authorization: Bearer {attacker}"),
    ("Authorization: Bearer {attacker}", "X-More: 1"),
    ("Cookie: a=b",),
)


@pytest.fixture(scope="module")
def gateway(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway."""
    running = Gateway(tmp_path_factory.mktemp("trailers"), gateway_broker.address)
    yield running
    running.close()


@pytest.fixture(scope="module")
def attacker(gateway: Gateway) -> Login:
    """A user with an ordinary token."""
    return gateway.user("attacker")


@pytest.fixture(scope="module")
def victim(gateway: Gateway) -> Login:
    """Another user, whose requests come over the same connection."""
    return gateway.user("victim")


def chunked(host: str, first: tuple[str, str, str, str], trailers: tuple[str, ...]) -> str:
    """Return a request whose body is one chunk, with trailer fields."""
    method, target, field, body = first
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", field, "Transfer-Encoding: chunked"]
    chunk = f"{len(body):x}\r\n{body}\r\n" if body else ""
    return "\r\n".join([*lines, "", f"{chunk}0", *trailers, "", ""])


async def converse(address: tuple[str, int], *parts: bytes) -> list[bytes]:
    """Send the parts over one connection; return what came after each, the end of file included."""
    reader, writer = await asyncio.open_connection(*address)
    answers = []
    async with asyncio.timeout(60):
        for part in parts[:-1]:
            writer.write(part)
            answers.append(await reader.readuntil(b"\r\n\r\n"))
        try:
            writer.write(parts[-1])
            answers.append(await reader.read())
        except OSError:  # it is closed already
            answers.append(b"")
    writer.close()
    return answers


@pytest.mark.parametrize("trailers", TRAILERS, ids=" ".join)
@pytest.mark.parametrize("is_pipelined", [False, True], ids=["in_turn", "pipelined"])
async def test_a_trailer_is_no_field_of_the_next_request(
    gateway: Gateway, attacker: Login, victim: Login, trailers: tuple[str, ...], is_pipelined: bool
) -> None:
    host = f"{gateway.address[0]}:{gateway.address[1]}"
    next_one = (
        f"GET /v1/session HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {victim[1]}\r\n\r\n"
    ).encode()
    for first in FIRST:
        text = chunked(host, first, trailers)
        request = text.replace("{attacker}", attacker[1]).replace("{}", "{}").encode()
        parts = (request + next_one,) if is_pipelined else (request, next_one)
        answers = b"".join(await converse(gateway.address, *parts))
        head, _, rest = answers.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 "), first
        # A client that is told to close sends the next request over another connection.
        assert b"connection: close" in head.lower(), first
        assert b"HTTP/1.1" not in rest, first


async def test_chunks_are_read_all_the_same(gateway: Gateway, attacker: Login) -> None:
    host = f"{gateway.address[0]}:{gateway.address[1]}"
    text = chunked(host, FIRST[0], ("Expires: 0",)).replace("{attacker}", attacker[1])
    [answer] = await converse(gateway.address, text.encode())
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"accepted":1' in answer
