"""The worker of forwardings: a real log, real servers, kills and servers that are down."""

from __future__ import annotations

import signal
import socket
from urllib.parse import parse_qs, urlsplit

import pytest

from consumers.forwarding.ways_out import NOT_ALLOWED, UNREACHABLE
from tests.consumers.connect.http.http_server import HttpServer, Seen
from tests.consumers.forwarding.running import LOOPBACK, Platform, keys_by_lat, lats
from tests.consumers.running import await_condition
from waylog.config import is_address


def test_fixes_of_a_user_go_to_the_server_and_to_no_other(platform: Platform) -> None:
    anna, bert = HttpServer(), HttpServer()
    with anna.running(), bert.running():
        before = platform.fixes("anna/phone", 5)
        platform.worker()
        platform.put("anna", 1, f"{anna.url}/", device_names={"phone": "4711"})
        platform.put("bert", 1, f"{bert.url}/", devices=("bike",))
        sent = platform.fixes("anna/phone", 20) + platform.fixes("anna/watch", 3)
        platform.fixes("bert/phone", 3)
        bike = platform.fixes("bert/bike", 3)
        await_condition(lambda: set(sent) <= set(lats(anna)), 60, "anna's fixes")
        await_condition(lambda: set(bike) <= set(lats(bert)), 60, "bert's fixes")
        assert sorted(lats(anna)) == sorted(sent)
        assert not set(before) & set(lats(anna)), "it begins when it was made"
        assert sorted(lats(bert)) == sorted(bike)
        ids = {parse_qs(urlsplit(each.path).query)["id"][0] for each in anna.seen}
        assert ids == {"4711", "anna/watch"}
        await_condition(
            lambda: platform.shown("anna", 1)["state"] == "live", 60, "the state is told"
        )
        await_condition(lambda: platform.shown("anna", 1)["forwarded"], 60, "and how far it is")


def test_a_server_that_is_down_holds_up_nobody_and_gets_all_later(platform: Platform) -> None:
    up, down = HttpServer(), HttpServer()
    with up.running():
        for number in range(6):
            platform.put(f"user{number}", 1, f"{down.url}/")
        platform.put("anna", 1, f"{up.url}/")
        options = (*LOOPBACK, "--retry-backoff-max", "2", "--session-timeout", "3")
        platform.stop_workers()
        worker = platform.start(*options)
        missing = []
        for number in range(6):
            # More than may wait of one forwarding.
            missing += platform.fixes(f"user{number}/phone", 20 if number else 600)
        sent = platform.fixes("anna/phone", 50)
        await_condition(lambda: set(sent) <= set(lats(up)), 60, "the others go on")
        await_condition(lambda: platform.shown("user0", 1)["error"] is not None, 60, "it says why")
        assert down.url.partition("//")[2] in platform.shown("user0", 1)["error"]
        worker.stop(signal.SIGKILL)
        platform.start(*options)
        sent = platform.fixes("anna/phone", 5)
        await_condition(lambda: set(sent) <= set(lats(up)), 60, "the others go on")
        with down.running():
            await_condition(lambda: set(missing) <= set(lats(down)), 120, "it catches up")
            later = platform.fixes("user0/phone", 5)
            await_condition(lambda: set(later) <= set(lats(down)), 60, "it is live again")
            await_condition(
                lambda: platform.shown("user0", 1)["state"] == "live", 60, "and says so"
            )
        assert all(len(each) == 1 for each in keys_by_lat(down).values())


def await_error(platform: Platform, number: int, wanted: str) -> None:
    """Wait until a forwarding of anna's is shown with this error.

    Between two attempts it may be that too many names are looked up for one user at once.
    """
    await_condition(lambda: platform.shown("anna", number)["error"] == wanted, 60, wanted)


def test_no_request_reaches_this_machine_unless_its_network_is_allowed(platform: Platform) -> None:
    server = HttpServer()
    server.answer = lambda _: (302, "", {"Location": f"{server.url}/elsewhere"})
    with server.running():
        worker = platform.worker(networks=())
        names = (
            *("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "127.1", "[::ffff:127.0.0.1]"),
            "nobody-has-this-name.invalid",
        )
        for number, name in enumerate(names):
            platform.put("anna", number, f"http://{name}:{server.port}/")
        platform.fixes("anna/phone", 3)
        for number in range(len(names)):
            # A short form is refused as no address at all. Of names nobody learns whether there is
            # such a one, nor what it stands for.
            why = NOT_ALLOWED if is_address(names[number].strip("[]")) else UNREACHABLE
            if names[number] == "127.1":
                why = "four decimal numbers"
            await_condition(
                lambda: why in (platform.shown("anna", number)["error"] or ""),  # noqa: B023
                *(60, f"{names[number]} is refused"),
            )
        for number, name in enumerate(names):
            if name != "127.1":
                reason = NOT_ALLOWED if is_address(name.strip("[]")) else UNREACHABLE
                wanted = f"http://{name}:{server.port}: cannot connect: {reason}"
                await_error(platform, number, wanted)
        # Operators are told whose it is: what a user may look up at once is bounded by that name.
        worker.wait_for("a forwarding of anna goes nowhere")
        assert server.seen == []


def test_no_mqtt_connection_reaches_this_machine_unless_its_network_is_allowed(
    platform: Platform,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        platform.worker(networks=())
        names = ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "nobody-has-this-name.invalid")
        for number, name in enumerate(names):
            platform.put("anna", number, f"mqtt://{name}:{port}/home", "mqtt")
        platform.fixes("anna/phone", 3)
        for number, name in enumerate(names):
            reason = NOT_ALLOWED if is_address(name.strip("[]")) else UNREACHABLE
            await_error(platform, number, f"mqtt://{name}:{port}: {reason}")
        with pytest.raises(BlockingIOError):
            server.accept()


def test_redirects_are_not_followed_and_refusals_are_told(platform: Platform) -> None:
    server, elsewhere = HttpServer(), HttpServer()

    def answer(seen: Seen) -> tuple[int, str] | tuple[int, str, dict[str, str]]:
        if seen.path.startswith("/moved"):
            return (302, "", {"Location": f"{elsewhere.url}/"})
        return (404, "no such device")

    server.answer = answer
    with server.running(), elsewhere.running():
        platform.worker()
        platform.put("anna", 1, f"{server.url}/moved")
        platform.put("anna", 2, f"{server.url}/")
        platform.fixes("anna/phone", 3)
        await_condition(lambda: platform.shown("anna", 2)["refused"] == 3, 60, "refused ones")
        await_condition(lambda: platform.shown("anna", 1)["error"], 60, "the redirect is told")
        assert "302" in platform.shown("anna", 1)["error"]
        assert "no such device" in platform.shown("anna", 2)["refusal"]
        assert elsewhere.seen == []
