"""Invalid UTF-8 and other nonsense wherever a request has room for it: 4xx, never 500."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator

import pytest

from tests.attacks.test_nobody import FIX, UPGRADE, basic
from tests.consumers.running import Broker
from tests.gateway.raw_http import Headers, ask
from tests.gateway.running import Gateway, Login

BYTES = (b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"M\xfcller", b"\x80\x81", "ü€😀".encode())
GET_PATHS = (
    *("/v1/devices", "/v1/stream", "/v1/ws", "/mqtt", "/metrics", "/v1/session", "/topics"),
    *("/reverse?lat=1&lon=2", "/", "/static/js/app.js", "/v1/devices/ada%2Fphone/track"),
)


@pytest.fixture(scope="module")
def gateway(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that must not log a traceback."""
    folder = tmp_path_factory.mktemp("malformed")
    running = Gateway(folder, gateway_broker.address, "--geo-url", "http://127.0.0.1:1")
    yield running
    running.close()
    assert "Traceback" not in running.process.output


@pytest.fixture(scope="module")
def ada(gateway: Gateway) -> Login:
    """An ordinary user."""
    return gateway.user("ada")


def credentials() -> Iterator[Headers]:
    """Yield credentials that belong to nobody."""
    for nonsense in BYTES:
        yield (("Authorization", b"Bearer " + nonsense),)
        yield (("Authorization", b"Basic " + nonsense),)
        yield (("Authorization", nonsense),)
        pair = base64.b64encode(nonsense + b":" + nonsense)
        yield (("Authorization", b"Basic " + pair),)
        yield (("Cookie", b"waylog-00000000=" + nonsense),)
        yield (("Cookie", nonsense),)
    for text in ("Bearer", "Bearer ", "Basic", "Basic Og==", "Basic AAAA", "Digest x", " ", "\0x"):
        yield (("Authorization", text),)
    yield (("Authorization", b"Bearer wl_" + b"x" * 6000),)
    yield (("Authorization", "Bearer x"), ("Authorization", b"Bearer \xff"))


async def test_malformed_credentials_are_unknown_credentials(gateway: Gateway) -> None:
    for headers in credentials():
        for path in ("/v1/devices", "/v1/stream", "/topics", "/v1/session"):
            status = (await ask(gateway.address, "GET", path, headers)).status
            assert status in (400, 401), (headers, path)
        status = (await ask(gateway.address, "GET", "/v1/ws", (*headers, *UPGRADE))).status
        assert status in (400, 401), headers
        for path in ("/v1/positions", "/owntracks", "/osmand", "/client/index.php"):
            status = (await ask(gateway.address, "POST", path, headers, FIX)).status
            assert status in (400, 401), (headers, path)


async def test_malformed_tokens_in_urls_are_unknown_tokens(gateway: Gateway) -> None:
    for nonsense in BYTES:
        quoted = b"".join(b"%%%02X" % each for each in nonsense)
        for token in (nonsense, quoted):
            for target in (
                *(b"/v1/devices?token=" + token, b"/v1/ws?token=" + token, b"/?id=wl_" + token),
                *(b"/osmand?token=%b&id=x&lat=1&lon=2" % token, b"/osmand/%b?lat=1&lon=2" % token),
            ):
                answer = await ask(gateway.address, "GET", target)
                assert answer.status in (400, 401, 404), target
            for target in (b"/owntracks/" + token, b"/api/webhook/" + token):
                answer = await ask(gateway.address, "POST", target, (), FIX)
                assert answer.status in (400, 401, 404, 410), target


async def test_malformed_headers_and_names_harm_nobody(gateway: Gateway, ada: Login) -> None:
    known = basic(ada)
    headers = (
        *("Last-Event-ID", "traceparent", "X-Forwarded-For", "Forwarded", "Accept-Language"),
        *("Content-Type", "Origin", "Host", "If-Modified-Since", "If-None-Match", "Range"),
        *("Accept", "Accept-Encoding", "User-Agent", "X-Limit-U", "X-Limit-D", "Cookie"),
        *("Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions", "Sec-Fetch-Site", "Connection"),
    )
    for nonsense in (*BYTES, b";=,\"'", b"text/x; charset=none-such", b"-1"):
        await asyncio.gather(*(_is_answered(gateway, name, nonsense, (known,)) for name in headers))


async def _is_answered(gateway: Gateway, name: str, value: bytes, more: Headers) -> None:
    for path in GET_PATHS:
        answer = await ask(gateway.address, "GET", path, ((name, value), *more))
        assert answer.status < 500 or answer.status == 503, (name, value, path, answer.body)
    for path in ("/v1/positions", "/owntracks", "/traccar", "/v1/session", "/client/index.php"):
        answer = await ask(gateway.address, "POST", path, ((name, value), *more), FIX)
        assert answer.status < 500, (name, value, path, answer.body)


async def test_malformed_targets_harm_nobody(gateway: Gateway, ada: Login) -> None:
    known = (basic(ada),)
    for nonsense in (*BYTES, b"%", b"%zz", b"%00", b"..%2f", b"%ED%A0%80", b"[", b"a" * 3000):
        for target in (
            *(b"/v1/devices/" + nonsense, b"/v1/devices/ada%2F" + nonsense + b"/track"),
            *(b"/v1/devices?after=" + nonsense, b"/v1/stream?device=ada%2F" + nonsense),
            *(b"/v1/stream?since=" + nonsense, b"/v1/stream?bbox=" + nonsense),
            *(b"/v1/devices/ada%2Fphone/track?from=" + nonsense, b"/search?q=" + nonsense),
            *(b"/static/" + nonsense, b"/topics/" + nonsense, b"/" + nonsense, b"/?" + nonsense),
            *(b"/osmand?lat=1&lon=2&id=" + nonsense, b"/osmand?lat=1&lon=2&x=" + nonsense),
        ):
            answer = await ask(gateway.address, "GET", target, known)
            assert answer.status < 500 or answer.status == 503, (target, answer.body)


async def test_a_device_named_in_latin_1_is_that_device(gateway: Gateway, ada: Login) -> None:
    headers: Headers = (basic(ada), ("X-Limit-D", b"M\xfcller"))
    body = b'{"_type":"location","lat":1.5,"lon":2,"tst":1780000000,"tid":"m"}'
    answer = await ask(gateway.address, "POST", "/owntracks", headers, body)
    assert answer.status == 200
    path = "/v1/devices/ada%2FM%C3%BCller"
    async with asyncio.timeout(60):
        while (await ask(gateway.address, "GET", path, (basic(ada),))).status != 200:
            await asyncio.sleep(0.05)


async def test_a_host_with_a_user_before_it_is_malformed(gateway: Gateway, ada: Login) -> None:
    port = gateway.address[1]
    for host in (f"127.0.0.1:{port}@evil.example", "evil.example@127.0.0.1", "127.0.0.1:x"):
        named = ("Host", host)
        for path in ("/", "/healthz", "/static/js/app.js", "/v1/session"):
            assert (await ask(gateway.address, "GET", path, (named,))).status == 400, (host, path)
        answer = await ask(gateway.address, "GET", "/v1/devices", (named, basic(ada)))
        assert answer.status == 400
        for path in ("/v1/positions", "/owntracks"):
            answer = await ask(gateway.address, "POST", path, (named, basic(ada)), FIX)
            assert answer.status == 400, (host, path)
    two = (("Host", "127.0.0.1"), ("Host", "evil.example"))
    assert (await ask(gateway.address, "GET", "/", two)).status == 400


@pytest.mark.parametrize("second", ["Bearer x", None])
async def test_several_credentials_are_refused(
    gateway: Gateway, ada: Login, second: str | None
) -> None:
    mine = basic(ada)
    both = (mine, mine if second is None else ("Authorization", second))
    for headers in (both, both[::-1]):
        for method, path, body in (
            ("GET", "/v1/devices", b""),
            ("POST", "/v1/positions", FIX),
            ("POST", "/owntracks", FIX),
        ):
            assert (await ask(gateway.address, method, path, headers, body)).status == 400


@pytest.mark.parametrize("version", [b"", b" HTTP/0.9", b" HTTP/2.0"])
async def test_other_versions_of_http_are_not_served(gateway: Gateway, version: bytes) -> None:
    reader, writer = await asyncio.open_connection(*gateway.address)
    try:
        writer.write(b"GET /" + version + b"\r\n\r\n")
        async with asyncio.timeout(60):
            answer = await reader.read()
    finally:
        writer.transport.abort()
    assert answer.split()[1] in (b"400", b"505")
    assert b"<html" not in answer
