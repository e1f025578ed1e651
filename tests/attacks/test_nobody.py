"""Nobody is authenticated without a credential: on loopback, behind a proxy, by another name."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.consumers.running import Broker
from tests.gateway.raw_http import Answer, Headers, ask, read_answer, request
from tests.gateway.running import Gateway, Login
from tests.ports import reserved_ports
from tests.tcp_server import tcp_server

NAME = "map.example"
READING = (
    *("/v1/devices", "/v1/devices/ada%2Fphone", "/v1/devices/ada%2Fphone/address"),
    *("/v1/devices/ada%2Fphone/track", "/v1/devices/ada%2Fphone/places", "/v1/pipeline"),
    *("/v1/stream", "/v1/session", "/v1/entrances", "/metrics", "/reverse?lat=1&lon=2"),
    *("/status", "/search?q=x", "/topics", "/brokers"),
)
PUBLIC = ("/", "/static/js/app.js", "/healthz", "/readyz", "/openapi.json")
UPGRADE: Headers = (
    *(("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")),
    ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
)
FIX = b'{"device":"phone","lat":47.1,"lon":9.5}'


@pytest.fixture(scope="module")
def gateway(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway on loopback that browsers may also reach under a name."""
    folder = tmp_path_factory.mktemp("nobody")
    options = ("--host", NAME, "--metrics-token-file", str(folder / "metrics.token"))
    running = Gateway(folder, gateway_broker.address, *options)
    yield running
    running.close()


@pytest.fixture(scope="module")
def open_gateway(
    gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway in open mode."""
    running = Gateway(tmp_path_factory.mktemp("open"), gateway_broker.address, "--open")
    yield running
    running.close()


@pytest.fixture(scope="module")
def ada(gateway: Gateway) -> Login:
    """An ordinary user."""
    return gateway.user("ada")


def basic(login: Login) -> tuple[str, str]:
    value = base64.b64encode(f"{login.name}:{login.token}".encode()).decode()
    return "Authorization", f"Basic {value}"


async def websocket(
    address: tuple[str, int], path: str, *headers: tuple[str, str | bytes]
) -> Answer:
    return await ask(address, "GET", path, (*headers, *UPGRADE))


async def test_a_program_on_this_machine_sees_nothing(gateway: Gateway, ada: Login) -> None:
    for path in READING:
        assert (await ask(gateway.address, "GET", path)).status == 401, path
    assert (await websocket(gateway.address, "/v1/ws")).status == 401
    assert (await ask(gateway.address, "POST", "/v1/positions", (), FIX)).status == 401
    for path in PUBLIC:
        assert (await ask(gateway.address, "GET", path)).status == 200, path
    assert (await ask(gateway.address, "GET", "/v1/devices", (basic(ada),))).status == 200


# --- behind a proxy without headers -------------------------------------------------------------


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def relayed(address: tuple[str, int]) -> AsyncIterator[tuple[str, int]]:
    """Run a proxy that only forwards bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection(*address)
        await asyncio.gather(_copy(reader, to_there), _copy(there, writer))

    async with tcp_server(serve) as port:
        yield "127.0.0.1", port


@asynccontextmanager
async def behind_nginx(
    address: tuple[str, int], folder: Path, *settings: str
) -> AsyncIterator[tuple[str, int]]:
    """Run nginx with only proxy_pass and `settings`."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("no nginx; install it with: apt-get install nginx-light")
    (port,) = reserved_ports(1)
    location = "".join(f"{each}; " for each in settings)
    temporary = " ".join(
        f"{name}_temp_path {folder}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log stderr crit; events {{}} http {{ "
        f"access_log off; {temporary} server {{ listen 127.0.0.1:{port}; location / {{ "
        f"proxy_pass http://{address[0]}:{address[1]}; {location}}} }} }}"
    )
    nginx = await asyncio.create_subprocess_exec(
        program, "-p", str(folder), "-c", str(folder / "nginx.conf")
    )
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except ConnectionError:
                    await asyncio.sleep(0.05)
            writer.close()
        yield "127.0.0.1", port
    finally:
        nginx.terminate()
        await nginx.wait()


async def _strangers_see_nothing(address: tuple[str, int], login: Login, host: str) -> None:
    named = ("Host", host)
    for path in READING:
        assert (await ask(address, "GET", path, (named,))).status in (401, 421), path
    assert (await websocket(address, "/v1/ws", named)).status in (401, 421)
    assert (await ask(address, "GET", "/v1/devices", (named, basic(login)))).status == 200
    assert (await ask(address, "POST", "/v1/positions", (named, basic(login)), FIX)).status == 200


async def test_a_stranger_behind_a_plain_proxy_sees_nothing(gateway: Gateway, ada: Login) -> None:
    async with relayed(gateway.address) as address:
        await _strangers_see_nothing(address, ada, NAME)
        await _strangers_see_nothing(address, ada, "other.example")
        assert (await ask(address, "GET", "/", (("Host", NAME),))).status == 200
        assert (await ask(address, "GET", "/", (("Host", "other.example"),))).status == 421


@pytest.mark.parametrize("settings", [(), ("proxy_set_header Host $host",)])
async def test_a_stranger_behind_a_bare_nginx_sees_nothing(
    gateway: Gateway, ada: Login, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    async with behind_nginx(gateway.address, tmp_path, *settings) as address:
        await _strangers_see_nothing(address, ada, NAME)
        # The page and signing in work without headers of the proxy.
        assert (await ask(address, "GET", "/", (("Host", NAME),))).status == 200
        body = json.dumps({"user": ada.name, "token": ada.token}).encode()
        kind, host = ("Content-Type", "application/json"), ("Host", NAME)
        origin = ("Origin", f"https://{NAME}")
        answer = await ask(address, "POST", "/v1/session", (kind, host, origin), body)
        assert answer.status == 200, answer
        assert "Secure" in answer.headers["set-cookie"]
        cookie = ("Cookie", answer.headers["set-cookie"].partition(";")[0])
        assert (await ask(address, "GET", "/v1/devices", (host, cookie))).status == 200


# --- other names (DNS rebinding) ----------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "localhost.evil.example", "evil-localhost"]
)
async def test_a_name_that_is_not_ours_is_refused_whatever_is_asked(
    gateway: Gateway, host: str
) -> None:
    named = ("Host", host)
    for path in (*PUBLIC, *READING, "/nothing/here"):
        answer = await ask(gateway.address, "GET", path, (named,))
        assert answer.status == 421, path
        assert b"--host" in answer.body
        # Made-up credentials do not help.
        token = f"{path}{'&' if '?' in path else '?'}token=x"
        for answer in (
            await ask(gateway.address, "GET", path, (named, ("Authorization", "Bearer x"))),
            await ask(gateway.address, "GET", token, (named,)),
        ):
            assert answer.status in (401, 421), path
    assert (await websocket(gateway.address, "/v1/ws", named)).status == 421
    body = b'{"code":"x"}'
    for method in ("POST", "DELETE"):
        answer = await ask(gateway.address, method, "/v1/session", (named,), body)
        assert answer.status == 421


async def test_devices_may_have_been_told_any_name(gateway: Gateway, ada: Login) -> None:
    named, kind = ("Host", "phones.example"), ("Content-Type", "application/json")
    for headers in ((named, basic(ada)), (named, basic(ada), kind)):
        answer = await ask(gateway.address, "POST", "/v1/positions", headers, FIX)
        assert answer.status == 200, answer
    path = f"/osmand?token={ada.token}&id=phone&lat=1&lon=2"
    assert (await ask(gateway.address, "GET", path, (named,))).status == 200
    token = (gateway.folder / "metrics.token").read_text().strip()
    prometheus = ("Authorization", f"Bearer {token}")
    assert (await ask(gateway.address, "GET", "/metrics", (named, prometheus))).status == 200
    answer = await ask(gateway.address, "POST", f"/owntracks/{ada.token}?d=x", (named,), b"")
    assert answer.status == 200
    # Without credentials, or with wrong ones, the answer is 401.
    assert (await ask(gateway.address, "POST", "/owntracks", (named,), FIX)).status == 401
    assert (await ask(gateway.address, "GET", "/?id=x&lat=1&lon=2", (named,))).status == 401


async def test_in_open_mode_no_credential_makes_up_for_a_name(open_gateway: Gateway) -> None:
    login, named = Login("ada", "x"), ("Host", "evil.example")
    address = open_gateway.address
    for headers in ((named,), (named, basic(login)), (named, ("Authorization", "Bearer x"))):
        for path in ("/v1/devices", "/v1/stream", "/metrics", "/?id=x&lat=1&lon=2"):
            assert (await ask(address, "GET", path, headers)).status == 421, path
        assert (await ask(address, "POST", "/v1/positions", headers, FIX)).status == 421
        assert (await websocket(address, "/v1/ws", *headers)).status == 421
        assert (await websocket(address, "/mqtt", *headers)).status == 421
    for credentials in ((), (basic(login),)):
        assert (await ask(address, "POST", "/v1/positions", credentials, FIX)).status == 200
        assert (await ask(address, "GET", "/v1/devices", credentials)).status == 200
    # Nor does an earlier good request on the same connection.
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(*address)
        for host, status in (("127.0.0.1", 200), ("evil.example", 421)):
            writer.write(request("POST", "/v1/positions", (("Host", host),), FIX))
            assert (await read_answer(reader)).status == status
        writer.close()


async def test_on_every_address_any_address_is_served_and_no_other_name(
    gateway_broker: Broker, tmp_path: Path
) -> None:
    running = Gateway(tmp_path, gateway_broker.address, http="0.0.0.0:0")
    address = ("127.0.0.1", running.address[1])
    machine = socket.gethostname()
    try:
        for host, status in (
            *(("192.0.2.7:8080", 200), ("[2001:db8::7]:8080", 200), ("localhost", 200)),
            *((machine, 200), (f"{machine.partition('.')[0]}.local", 200), ("evil.example", 421)),
        ):
            assert (await ask(address, "GET", "/", (("Host", host),))).status == status, host
    finally:
        running.close()


# --- metrics ------------------------------------------------------------------------------------


async def test_metrics_are_read_by_administrators_and_by_their_own_token(
    gateway: Gateway, ada: Login
) -> None:
    file = gateway.folder / "metrics.token"
    assert file.stat().st_mode & 0o777 == 0o600
    bearer = ("Authorization", f"Bearer {file.read_text().strip()}")
    for path in ("/metrics", "/v1/pipeline"):
        assert (await ask(gateway.address, "GET", path, (basic(ada),))).status == 403
        for header in (bearer, basic(gateway.admin)):
            assert (await ask(gateway.address, "GET", path, (header,))).status == 200
    # The token is valid for nothing else.
    assert (await ask(gateway.address, "GET", "/v1/devices", (bearer,))).status == 401
    assert (await ask(gateway.address, "POST", "/v1/positions", (bearer,), FIX)).status == 401


@pytest.mark.parametrize(("audience", "expected"), [("user", (401, 200)), ("public", (200, 200))])
async def test_an_operator_may_let_others_read_metrics(
    gateway_broker: Broker, tmp_path: Path, audience: str, expected: tuple[int, int]
) -> None:
    running = Gateway(tmp_path, gateway_broker.address, "--metrics-access", audience)
    try:
        ada = running.user("ada")
        for headers, status in zip(((), (basic(ada),)), expected, strict=True):
            assert (await ask(running.address, "GET", "/metrics", headers)).status == status
        evil = (("Host", "evil.example"), basic(Login("x", "y")))
        # Wrong credentials show nothing; where none are needed, they do not make up for the name.
        refusal = 421 if audience == "public" else 401
        assert (await ask(running.address, "GET", "/metrics", evil)).status == refusal
    finally:
        running.close()
