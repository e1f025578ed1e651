"""Web Push notifications: encrypted for the browser, signed, and ended when the browser is gone."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from py_vapid import Vapid02

from gateway.notices.arrivals import Arrival
from gateway.notices.web_push import BadSubscription, Keys, Subscription, WebPush
from gateway.users.database import UserStore
from tests.consumers.running import Broker
from tests.gateway.notices.test_event_teller import Client, append, fence_event
from tests.gateway.running import Gateway, Login, json_of

#: A gateway whose push services need not be in the internet.
ANYWHERE = (
    *(sys.executable, "-c"),
    "from functools import partial\n"
    "from gateway.process import gateway_process\n"
    "from waylog.cli import main\n"
    "gateway_process.WebPush = partial(gateway_process.WebPush, anywhere=True)\n"
    "raise SystemExit(main())",
)

ARRIVAL = Arrival("ada/phone", {"place_id": "p", "label": "home"}, 5_000, 4_000, 47.1, 9.5)


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def hkdf(salt: bytes, secret: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(secret)


class Browser:
    """A browser's keys and its push service."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.secret = bytes(range(16))
        self.status = 201
        #: Where the service says that it has moved to, with a status that says so.
        self.location: str | None = None
        self.paths: list[str] = []
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.url = ""

    @property
    def keys(self) -> Keys:
        public = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return Keys(text(public), text(self.secret))

    async def take(self, request: web.Request) -> web.Response:
        self.received.append((dict(request.headers), await request.read()))
        self.paths.append(request.path)
        headers = {} if self.location is None else {"Location": self.location}
        return web.Response(status=self.status, headers=headers)

    def read(self, body: bytes) -> Any:
        """Decrypt a message of one record, as RFC 8291 (3.4) and RFC 8188 (2) say."""
        salt, size, length = body[:16], int.from_bytes(body[16:20]), body[20]
        sender, sealed = body[21 : 21 + length], body[21 + length :]
        assert len(sealed) <= size
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
        own = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        shared = self.key.exchange(ec.ECDH(), public)
        material = hkdf(self.secret, shared, b"WebPush: info\0" + own + sender, 32)
        key = hkdf(salt, material, b"Content-Encoding: aes128gcm\0", 16)
        nonce = hkdf(salt, material, b"Content-Encoding: nonce\0", 12)
        plain = AESGCM(key).decrypt(nonce, sealed, None).rstrip(b"\0")
        assert plain[-1:] == b"\2", "the last record"
        return json.loads(plain[:-1])


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    made = Browser()
    application = web.Application()
    application.router.add_post("/push/{id}", made.take)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/push/1"
    yield made
    await runner.cleanup()


async def sent(push: WebPush, browser: Browser, count: int) -> None:
    push.arrived(ARRIVAL)
    async with asyncio.timeout(60):
        while len(browser.received) < count or push._sending:
            await asyncio.sleep(0.01)


async def test_an_arrival_is_a_notification_that_only_the_browser_can_read(
    browser: Browser, tmp_path: Path
) -> None:
    store = UserStore(tmp_path / "users.db")
    store.add("ada")
    store.add("bob")
    push = WebPush(store, "mailto:me@example.org", anywhere=True)
    push.subscribe("ada", Subscription(browser.url, browser.keys))
    await sent(push, browser, 1)
    headers, body = browser.received[0]
    assert browser.read(body) == {
        **{"type": "arrival", "device": "ada/phone", "place": "Home"},
        **{"time": 5000, "lat": 47.1, "lon": 9.5},
    }
    assert (headers["Content-Encoding"], headers["TTL"]) == ("aes128gcm", "1800")
    assert len(headers["Topic"]) == 32
    assert Vapid02.verify(headers["Authorization"])
    assert f"k={push.public_key()}" in headers["Authorization"]
    # Another process has the same key.
    assert WebPush(store, "mailto:me@example.org").public_key() == push.public_key()

    browser.status = 410
    await sent(push, browser, 2)
    assert store.rights.push_subscriptions("ada") == []
    await push.close()
    store.close()


async def test_notifications_go_on_after_as_many_as_may_wait(
    browser: Browser, tmp_path: Path
) -> None:
    store = UserStore(tmp_path / "users.db")
    store.add("ada")
    push = WebPush(store, "mailto:me@example.org", anywhere=True)
    push.subscribe("ada", Subscription(browser.url, browser.keys))
    for number in range(25):
        await sent(push, browser, number + 1)
    await push.close()
    store.close()


async def test_a_push_service_does_not_send_us_elsewhere(browser: Browser, tmp_path: Path) -> None:
    store = UserStore(tmp_path / "users.db")
    store.add("ada")
    push = WebPush(store, "mailto:me@example.org", anywhere=True)
    push.subscribe("ada", Subscription(browser.url, browser.keys))
    browser.status, browser.location = 307, browser.url.replace("/push/1", "/push/2")
    await sent(push, browser, 1)
    assert browser.paths == ["/push/1"]
    await push.close()
    store.close()


async def test_an_event_of_the_log_is_a_notification_that_only_its_owner_can_read(
    gateway_broker: Broker, browser: Browser, tmp_path: Path
) -> None:
    contact = ("--push-contact", "mailto:me@example.org")
    options = (*contact, "--mqtt", "127.0.0.1:0")
    running = Gateway(tmp_path, gateway_broker.address, *options, program=ANYWHERE)
    try:
        ada, bob = running.user("wp-ada"), running.user("wp-bob")
        body = {"endpoint": browser.url, "keys": msgspec.to_builtins(browser.keys)}
        async with running.client(ada) as client:
            await json_of(await client.post("/v1/push/subscriptions", json=body), 201)
            public_key = (await json_of(await client.get("/v1/push/key")))["key"]
        notice, transition = f"devices/{ada.name}/phone/notice", f"owntracks/{ada.name}/+/event"
        phone = await asyncio.to_thread(Client, running, ada, notice, transition)
        events = [fence_event(bob, "not hers"), fence_event(ada, "garden")]
        await asyncio.to_thread(append, gateway_broker.address, *events)
        async with asyncio.timeout(60):
            while not browser.received or len(phone.received) < 2:
                await asyncio.sleep(0.01)
        [(headers, sealed)] = browser.received
        message = browser.read(sealed)
        assert b"garden" not in sealed
        assert (message["fence"], message["transition"]) == ("garden", "enter")
        assert message["device"] == f"{ada.name}/phone"
        assert Vapid02.verify(headers["Authorization"])
        assert f"k={public_key}" in headers["Authorization"]
        # The phone is told the same.
        assert phone.of(notice) == [message]
        [told] = phone.of(f"owntracks/{ada.name}/places/event")
        assert (told["_type"], told["event"], told["desc"]) == ("transition", "enter", "garden")
        await asyncio.to_thread(phone.close)
        # A browser that is gone is told nothing more.
        browser.status = 410
        await asyncio.to_thread(append, gateway_broker.address, fence_event(ada, "door"))
        async with asyncio.timeout(60):
            while running.users.rights.push_subscriptions(ada.name):
                await asyncio.sleep(0.01)
    finally:
        running.close()


async def test_a_friend_request_is_a_notification_of_who_is_asked(
    gateway_broker: Broker, browser: Browser, tmp_path: Path
) -> None:
    contact = ("--push-contact", "mailto:me@example.org")
    running = Gateway(tmp_path, gateway_broker.address, *contact, program=ANYWHERE)
    try:
        ada, bob, eve = (running.user(f"asked-{name}") for name in ("ada", "bob", "eve"))
        body = {"endpoint": browser.url, "keys": msgspec.to_builtins(browser.keys)}
        async with running.client(ada) as client:
            await json_of(await client.post("/v1/push/subscriptions", json=body), 201)
            assert (await client.put(f"/v1/friends/{eve.name}/block")).status == 204
        # One that is repeated is no news, and one of who is blocked is none either.
        for asking in (eve, bob, bob):
            async with running.client(asking) as client:
                assert (await client.post(f"/v1/friends/{ada.name}/request")).status == 204
        cid = running.user("asked-cid")
        async with running.client(cid) as client:
            assert (await client.post(f"/v1/friends/{ada.name}/request")).status == 204
        async with asyncio.timeout(60):
            while len(browser.received) < 2:
                await asyncio.sleep(0.01)
        told = [browser.read(sealed) for _, sealed in browser.received]
        # Each is sent by itself: the later one may come first.
        assert sorted((each["type"], each["user"]) for each in told) == [
            ("friend_request", bob.name),
            ("friend_request", cid.name),
        ]
    finally:
        running.close()


async def test_subscriptions_of_a_user_are_few_and_its_own(tmp_path: Path) -> None:
    store = UserStore(tmp_path / "users.db")
    store.add("ada")
    push = WebPush(store, "mailto:me@example.org")
    browser = Browser()
    for number in range(15):
        endpoint = f"https://push.example/{number}"
        push.subscribe("ada", Subscription(endpoint, browser.keys))
    kept = [endpoint for endpoint, _, _ in store.rights.push_subscriptions("ada")]
    assert sorted(kept) == sorted(f"https://push.example/{number}" for number in range(5, 15))
    push.unsubscribe("bob", kept[0])
    assert len(store.rights.push_subscriptions("ada")) == 10
    push.unsubscribe("ada", kept[0])
    assert len(store.rights.push_subscriptions("ada")) == 9
    store.revoke("ada")
    assert store.rights.push_subscriptions("ada") == []
    store.close()


@pytest.mark.parametrize(
    "endpoint",
    [
        *("", "nonsense", "http://push.example/1", "https://127.0.0.1/1", "https://[::1]/1"),
        *("https://localhost/1", "https://push.example:6379/", "https://x/" + "a" * 2000),
        *("ftp://push.example/1", "https://me@push.example/1", "https://me:x@push.example/1"),
    ],
)
def test_an_endpoint_is_a_push_service_in_the_internet(endpoint: str, tmp_path: Path) -> None:
    store = UserStore(tmp_path / "users.db")
    push = WebPush(store, "mailto:me@example.org")
    with pytest.raises(BadSubscription):
        push.subscribe("ada", Subscription(endpoint, Browser().keys))
    with pytest.raises(BadSubscription):
        push.subscribe("ada", Subscription("https://push.example/1", Keys("AAAA", "AAAA")))
    store.close()


async def test_a_name_that_leads_into_our_own_networks_is_not_followed(
    browser: Browser, tmp_path: Path
) -> None:
    from gateway.notices.web_push import _GlobalResolver

    resolver = _GlobalResolver()
    with pytest.raises(OSError, match="no address in the internet"):
        await resolver.resolve("localhost", 443)
    await resolver.close()


async def test_names_of_a_silent_nameserver_hold_up_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []
    answered = threading.Event()
    look_up = socket.getaddrinfo

    def silent(host: Any, *more: Any, **options: Any) -> Any:
        asked.append(str(host))
        if str(host).endswith("silent.example"):
            answered.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "no nameserver answers")
        return look_up("127.0.0.1", *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(2))  # that of uvloop has four threads
    store = UserStore(tmp_path / "users.db")
    push = WebPush(store, "mailto:me@example.org")
    names = {"ada": [f"{each}.silent" for each in range(10)], "bob": ["good"], "eve": ["a.."]}
    for user, own in names.items():
        store.add(user)
        for name in own:
            endpoint = f"https://{name}.example/push"
            push.subscribe(user, Subscription(endpoint, Browser().keys))
    try:
        async with asyncio.timeout(60):
            push.arrived(ARRIVAL)
            while len(asked) < 2:
                await asyncio.sleep(0.01)
            assert await loop.getaddrinfo("good.example", 80)
            asked.clear()
            push.arrived(ARRIVAL._replace(device="bob/phone"))
            while "good.example" not in asked:
                await asyncio.sleep(0.01)
            push.arrived(ARRIVAL._replace(device="eve/phone"))
            while caplog.text.count("a push service cannot be reached") < 2:
                await asyncio.sleep(0.01)
        assert not [each for each in caplog.records if each.exc_info]
    finally:
        answered.set()
        await push.close()
        store.close()


async def test_without_a_contact_there_are_no_notifications(gateway: Gateway, user: Login) -> None:
    async with gateway.client(user) as client:
        assert "--push-contact" in (await json_of(await client.get("/v1/push/key"), 404))["error"]


async def test_a_page_subscribes(gateway: Gateway, tmp_path: Path) -> None:
    other = Gateway(tmp_path, gateway.bootstrap_servers, "--push-contact", "mailto:me@example.org")
    try:
        user = other.user("ada")
        keys = Browser().keys
        body: dict[str, Any] = {
            **{"endpoint": "https://push.example/1", "expirationTime": None},
            **{"keys": {"p256dh": keys.p256dh, "auth": keys.auth}},
        }
        path = "/v1/push/subscriptions"
        async with other.client() as client:
            assert len((await json_of(await client.get("/v1/push/key")))["key"]) == 87
            await json_of(await client.post(path, json=body), 401)
        phone = Login("ada", other.users.add_token("ada", "phone"))
        async with other.client(phone) as client:
            # Notifications are about all devices of a user.
            await json_of(await client.post(path, json=body), 403)
        async with other.client(user) as client:
            await json_of(await client.post(path, json=body), 201)
            bad: dict[str, Any]
            for bad in ({}, body | {"endpoint": "https://127.0.0.1/"}):
                await json_of(await client.post(path, json=bad), 400)
            assert len(other.users.rights.push_subscriptions("ada")) == 1
            answer = await client.delete(path, json={"endpoint": body["endpoint"]})
            assert answer.status == 204
            assert other.users.rights.push_subscriptions("ada") == []
    finally:
        other.close()
