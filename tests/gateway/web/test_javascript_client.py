"""The JavaScript client in a real browser, against a gateway with its log."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.consumers.running import Broker
from tests.gateway.running import Gateway, Login
from tests.ports import reserved_ports
from waylog.client import Client, Position
from waylog.kafka.clients import ensure_topics

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

BEGAN_MS: Final = 1_780_128_000_000
PASSWORD: Final = "correct horse battery"
_numbers = itertools.count()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    broker = Broker(tmp_path_factory.mktemp("broker"))
    ensure_topics(broker.address)
    running = Gateway(tmp_path_factory.mktemp("gateway"), broker.address)
    yield running
    running.close()
    broker.process.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(browser: Browser, gateway: Gateway) -> AsyncIterator[Page]:
    """Yield a page of the gateway's origin with nothing on it."""
    context = await browser.new_context()
    opened = await context.new_page()
    await opened.goto(f"{gateway.url}/healthz")
    yield opened
    await context.close()


class Script:
    """Runs JavaScript in the page with `waylog`, a client, and the module's names."""

    def __init__(self, page: Page, gateway: Gateway, login: Login) -> None:
        self._page = page
        self._options = {"user": login.name, "token": login.token}
        self.url = gateway.url
        self.login = login

    async def __call__(self, code: str, **given: Any) -> Any:
        settings = json.dumps({**self._options, **given.pop("options", {})})
        names = ", ".join(given)
        return await self._page.evaluate(
            f"""async ({{ url, {names} }}) => {{
              const {{ ApiError, Client, ServerEventParser, Unreachable }} =
                await import("/static/js/client/waylog.js");
              const until = async (ask, isWanted) => {{
                for (;;) {{
                  const found = await ask();
                  if (isWanted(found)) return found;
                  await new Promise((resolve) => setTimeout(resolve, 50));
                }}
              }};
              const every = async (stream) => {{
                const found = [];
                for await (const each of stream) found.push(each);
                return found;
              }};
              const failure = async (does) => {{
                try {{ await does(); }} catch (error) {{ return error; }}
              }};
              const waylog = new Client(url, {settings});
              {code}
            }}""",
            {"url": given.pop("url", self.url), **given},
        )


@pytest.fixture
def script(page: Page, gateway: Gateway) -> Script:
    return Script(page, gateway, gateway.user(f"user{next(_numbers)}"))


async def test_what_is_sent_is_read_back(script: Script, gateway: Gateway) -> None:
    name = f"{script.login.name}/car"
    found = await script(
        """
        const positions = Array.from({ length: 60 }, (_, minute) => ({
          device: "car", lat: 47 + 0.005 * Math.min(minute, 30), lon: 9.5, accuracy: 5,
          time: new Date(began + minute * 60000), speed: minute < 30 ? 9 : 0 }));
        const sent = await waylog.send(positions);
        const again = await waylog.send(positions);
        const dog = { device: "dog", lat: 1, lon: 2 };
        const dogs = [];
        for (const each of [dog, dog, { ...dog, id: "other" }]) dogs.push(await waylog.send(each));
        const day = { since: new Date(began - 3600000), until: began + 23 * 3600000 };
        const track = await until(() => waylog.track(name, day), (track) => track.length >= 60);
        return {
          sent, again, dogs, track, part: await waylog.track(name, { since: began + 30 * 60000 }),
          device: await waylog.device(name), devices: (await every(waylog.devices())).slice(0, 1),
          gpx: await waylog.trackFile(name, "gpx", day), timeline: await waylog.timeline(name, day),
          days: await waylog.days(name, { ...day, timeZone: "Europe/Vaduz" }),
          totals: await waylog.statistics(name, { ...day, by: "month" }),
          found: [
            await waylog.places(name), await waylog.visits(name), await waylog.trips(name, day),
          ],
          receipt: await waylog.receipt(name, { day: "yesterday" }),
        };
        """,
        began=BEGAN_MS,
        name=name,
    )
    assert len(set(found["sent"]["ids"])) == 60 and found["sent"]["rejected"] == []
    assert found["again"] == found["sent"]
    # Without a time, too.
    assert found["dogs"][0] == found["dogs"][1] != found["dogs"][2]
    with Client(script.url, user=script.login.name, token=script.login.token) as waylog:
        points = await asyncio.to_thread(waylog.track, name)
        assert [tuple(point.values()) for point in found["track"]] == [
            (each.time, each.lat, each.lon, each.altitude, each.accuracy, each.speed, each.course)
            for each in points
        ]
    assert len(found["part"]) == 30
    assert found["devices"] == [found["device"]] and found["device"]["device"] == name
    assert "<gpx" in found["gpx"]
    assert {each["kind"] for each in found["timeline"]} >= {"trip", "stay"}
    assert sum(found["days"].values()) == 60
    assert found["totals"][0]["fixes"] == 60
    assert found["found"] == [[], [], []]
    assert found["receipt"]["device"] == name


async def test_large_tracks_go_in_several_requests(script: Script) -> None:
    sent, count = await script(
        """
        function* ship() {
          for (let each = 0; each < 2500; each += 1) {
            const lat = each === 1700 ? 91 : each / 1000;
            yield { device: "ship ä&%2F", lat, lon: 1, time: began + 1000 * each };
          }
        }
        const sent = await waylog.send(ship());
        const [{ device }] = await until(() => every(waylog.devices()), (found) => found.length);
        const track = await until(() => waylog.track(device), (found) => found.length >= 2499);
        return [sent, track.length];
        """,
        began=BEGAN_MS,
    )
    assert len(sent["ids"]) == count == 2_499
    [refused] = sent["rejected"]
    assert refused["index"] == 1_700 and "lat" in refused["reason"]


async def test_all_devices_are_listed_whatever_the_page(script: Script) -> None:
    names = await script(
        """
        const numbers = [...Array(30).keys()];
        await waylog.send(numbers.map((each) => ({ device: `d ${10 + each}`, lat: 1, lon: 2 })));
        await until(() => every(waylog.devices()), (found) => found.length === 30);
        const get = waylog.success.bind(waylog);
        const paged = (path) => `${path}${path.includes("?") ? "&" : "?"}limit=7`;
        waylog.success = (method, path) => get(method, paged(path));
        return (await every(waylog.devices())).map(({ name }) => name);
        """
    )
    assert names == [f"d_{10 + number}" for number in range(30)]


async def test_tokens_of_devices(script: Script) -> None:
    made, tokens, sent, after, printed = await script(
        """
        const made = await waylog.createDeviceToken("watch", "colota");
        const tokens = await waylog.deviceTokens();
        const watch = new Client(url, { token: made.token });
        const sent = await watch.send({ lat: 1, lon: 2 });
        const printed = JSON.stringify([watch, waylog]) + Object.keys(watch);
        await waylog.revokeDeviceTokens("watch");
        return [made, tokens, sent, await waylog.deviceTokens(), printed];
        """
    )
    assert [each["device"] for each in tokens] == [made["device"]]
    assert len(sent["ids"]) == 1 and after == []
    assert made["token"] not in printed and script.login.token not in printed


async def test_refusals_say_why_and_silence_is_told_apart(script: Script) -> None:
    [port] = reserved_ports(1)
    told = await script(
        """
        const shown = ({ name, message, status }) => ({ name, message, status });
        const stranger = new Client(url, { user: "nobody", token: "wrong" });
        const nowhere = new Client(`http://127.0.0.1:${port}/`, { token: "x", patienceMs: 0 });
        return [
          await failure(() => waylog.device("other/phone")),
          await failure(() => stranger.send({ lat: 1, lon: 2 })),
          await failure(() => every(stranger.live())),
          await failure(() => nowhere.send({ lat: 1, lon: 2 })),
          await failure(() => every(nowhere.live())),
          await failure(() => new Client(url, { user: "a:b", token: "x" })),
          await failure(() => waylog.track("a/b", { since: new Date("tomorrow") })),
          await failure(() => waylog.request("GET", "/v1/nothing")),
        ].map((error) => shown(error));
        """,
        port=port,
    )
    assert [(each["name"], each.get("status")) for each in told] == [
        *(("ApiError", told[0]["status"]), ("ApiError", 401), ("ApiError", 401)),
        *(("Unreachable", None), ("Unreachable", None), ("TypeError", None), ("TypeError", None)),
        ("ApiError", 404),
    ]
    assert told[0]["status"] in (403, 404) and told[0]["message"].startswith("HTTP 40")
    assert f"127.0.0.1:{port}: " in told[3]["message"]
    assert told[5]["message"] == "a user's name has no colon"
    assert "is no time" in told[6]["message"]


async def test_whoever_has_signed_in_needs_no_token(script: Script, gateway: Gateway) -> None:
    gateway.users.set_password(script.login.name, PASSWORD)
    await script("await waylog.send({ device: 'phone', lat: 1, lon: 2 });")
    devices = await script(
        """
        const headers = { "content-type": "application/json" };
        const body = JSON.stringify({ user, token: password });
        const answer = await fetch("/v1/session", { method: "POST", headers, body });
        if (!answer.ok) throw new Error(await answer.text());
        const viewer = new Client();
        return until(() => every(viewer.devices()), (found) => found.length);
        """,
        user=script.login.name,
        password=PASSWORD,
    )
    assert [each["name"] for each in devices] == ["phone"]
    await script('await fetch("/v1/session", { method: "DELETE" });')


async def test_nothing_is_lost_over_a_kill_of_the_gateway(script: Script, gateway: Gateway) -> None:
    """Positions are sent again, and the live stream goes on where it was."""
    mine = f"{script.login.name}/phone"
    await script(
        """
        const state = window.state = { seen: [], ended: false, sent: [] };
        await waylog.send({ device: "phone", lat: 1, lon: 0 });
        await until(() => every(waylog.devices()), (found) => found.length);
        const stop = state.stop = new AbortController();
        (async () => {
          const options = { devices: [mine, `${mine}2`], signal: stop.signal };
          for await (const event of waylog.live(options)) {
            if (event.type === "fix") state.seen.push(event.fix.lat);
          }
          state.ended = true;
        })().catch((error) => { state.failed = String(error); });
        (async () => {
          for (let lat = 2; lat <= 40; lat += 1) {
            const device = lat % 2 ? "phone" : "phone2";
            const { ids } = await waylog.send({ device, lat, lon: 0 });
            state.sent.push(...ids);
            await new Promise((resolve) => setTimeout(resolve, 20));
          }
        })().catch((error) => { state.failed = String(error); });
        """,
        mine=mine,
    )

    async def grown(name: str, count: int) -> Any:
        return await script(
            "return until(() => state, (s) => s.failed || new Set(s[name]).size >= count)",
            name=name,
            count=count,
        )

    await grown("seen", 5)
    await asyncio.to_thread(gateway.kill)
    await asyncio.to_thread(gateway.start)
    with Client(script.url, user=script.login.name, token=script.login.token) as waylog:
        for lat in range(41, 61):
            await asyncio.to_thread(waylog.send, Position(device="phone", lat=lat, lon=0))
    await grown("sent", 39)
    state = await grown("seen", 60)
    assert "failed" not in state
    assert len(set(state["sent"])) == 39
    assert set(state["seen"]) == set(range(1, 61))
    # The newest ones may come twice, and nothing else does.
    assert len(state["seen"]) <= 62
    ended = await script(
        """
        state.stop.abort();
        await until(() => state, (found) => found.ended || found.failed);
        return [state.ended, state.failed ?? null];
        """
    )
    assert ended == [True, None]


async def test_the_stream_is_narrowed(script: Script) -> None:
    seen = await script(
        """
        const places = Object.entries({ a: 179, b: -179, c: 0 });
        await waylog.send(places.map(([device, lon]) => ({ device, lat: 10, lon })));
        await until(() => every(waylog.devices()), (found) => found.length === 3);
        const firsts = async (options, count) => {
          const found = [];
          for await (const event of waylog.live(options)) {
            if (event.type === "fix") found.push(event.fix.device.split("/")[1]);
            if (found.length === count) break;
          }
          return found.sort();
        };
        return [
          await firsts({ bbox: [170, 0, -170, 20] }, 2),
          await firsts({ bbox: [-10, 0, 10, 20] }, 1),
          await firsts({ devices: [`${user}/b`] }, 1),
          await firsts({ devices: ["a", "c", "none"].map((each) => `${user}/${each}`) }, 2),
          await firsts({ friends: false }, 3),
        ];
        """,
        user=script.login.name,
    )
    assert seen == [["a", "b"], ["c"], ["b"], ["a", "c"], ["a", "b", "c"]]


async def test_events_are_read_however_the_stream_is_cut(script: Script) -> None:
    text = (
        "retry: 1000\nid: one\n: ready\n\n"
        'event: fix\r\ndata: {"a":\r\ndata:1}\r\nid: two\r\n\r\n'
        ": \n\nevent\rdata\r\rdata: last: ü\nignored: x\n\n"
    )
    wrong = await script(
        """
        const all = (cuts) => {
          const parser = new ServerEventParser();
          const found = [];
          let from = 0;
          for (const cut of [...cuts, text.length]) {
            found.push(...parser.feed(text.slice(from, cut)));
            from = cut;
          }
          return found;
        };
        const whole = JSON.stringify(all([]));
        const wrong = [];
        for (let first = 0; first <= text.length; first += 1) {
          if (JSON.stringify(all([first])) !== whole) wrong.push(first);
        }
        if (JSON.stringify(all([...text].map((_, index) => index))) !== whole) wrong.push("each");
        return [JSON.parse(whole), wrong];
        """,
        text=text,
    )
    assert wrong == [
        [
            {"id": "one", "event": "message", "data": ""},
            {"id": "two", "event": "fix", "data": '{"a":\n1}'},
            {"id": "two", "event": "message", "data": ""},
            {"id": "two", "event": "message", "data": ""},
            {"id": "two", "event": "message", "data": "last: ü"},
        ],
        [],
    ]
