"""What servers of each kind are sent, and who may send it: on a real log."""

from __future__ import annotations

import base64
import hmac
import json
import time

from tests.consumers.connect.http.http_server import HttpServer, Seen
from tests.consumers.connect.mqtt.mosquitto_server import (
    PASSWORD,
    USER,
    MosquittoServer,
    MqttPeer,
)
from tests.consumers.forwarding.running import Platform
from tests.consumers.running import await_condition
from waylog.forwarding.pauses import new_pause


def test_webhooks_are_signed_and_have_the_fix(platform: Platform) -> None:
    server = HttpServer()
    with server.running():
        platform.worker()
        platform.put(
            *("anna", 1, f"{server.url}/hook", "webhook"),
            signing_secret="secret",
            username="anna",
            password="word",
        )
        platform.fixes("anna/phone", 1)
        await_condition(lambda: server.seen, 60, "the fix")
        (seen,) = server.seen
    assert json.loads(seen.body)["device"] == "anna/phone"
    signed = f"{seen.headers['webhook-id']}.{seen.headers['webhook-timestamp']}.".encode()
    wanted = base64.b64encode(hmac.digest(b"secret", signed + seen.body, "sha256")).decode()
    assert seen.headers["webhook-signature"] == f"v1,{wanted}"
    assert seen.headers["Authorization"] == "Basic " + base64.b64encode(b"anna:word").decode()


def test_batches_go_to_servers_that_take_them(platform: Platform) -> None:
    server = HttpServer()
    server.answer = lambda _: (201, '{"data":[]}')
    with server.running():
        platform.worker()
        made = {"token": "key", "since": time.time_ns() // 1_000_000}
        platform.put("anna", 1, server.url, "dawarich", paused_by="anna", **made)
        platform.fixes("anna/phone", 250)
        platform.put("anna", 1, server.url, "dawarich", **made)
        await_condition(
            lambda: sum(len(json.loads(each)["locations"]) for each in server.bodies) == 250,
            *(60, "all fixes"),
        )
        assert len(server.seen) < 20


def test_what_something_else_answers_in_a_servers_place_refuses_nothing(
    platform: Platform,
) -> None:
    server = HttpServer()
    page = (200, "<!DOCTYPE html><title>secret</title>", {"Content-Type": "text/html"})
    kinds: dict[str, tuple[str, str]] = {
        "phonetrack": ("PhoneTrack", '{"done":1,"friends":[]}'),
        "dawarich": ("Dawarich", '{"data":[]}'),
        "owntracks-recorder": ("the Recorder", "[]"),
        "home-assistant": ("Home Assistant", "[]"),
        "home-assistant-gpslogger": ("Home Assistant", "Setting location for phone"),
        "traccar": ("Traccar", ""),
    }
    server.answer = lambda _: page
    with server.running():
        platform.worker("--retry-backoff-max", "1")
        for number, kind in enumerate(kinds):
            platform.put("anna", number, f"{server.url}/{kind}", kind)
        platform.fixes("anna/phone", 3)
        for number, (name, _) in enumerate(kinds.values()):
            await_condition(
                lambda: platform.shown("anna", number)["error"],  # noqa: B023
                *(60, f"{name} has failed"),
            )
            error = platform.shown("anna", number)["error"]
            assert f"answered 200 OK with text/html, which is no answer of {name}" in error
            assert "secret" not in error
        taken: list[Seen] = []

        def take(seen: Seen) -> tuple[int, str]:
            taken.append(seen)
            return (200, kinds[_kind_of(seen)][1])

        server.answer = take
        for number, kind in enumerate(kinds):
            await_condition(
                lambda: platform.shown("anna", number)["state"] == "live",  # noqa: B023
                *(60, f"{kind} is live"),
            )
            assert platform.shown("anna", number)["refused"] == 0
        of_kinds = [_kind_of(each) for each in taken]
        one_by_one = set(kinds) - {"phonetrack", "dawarich"}
        assert {each for each in one_by_one if of_kinds.count(each) < 3} == set()
        points = [each for each in taken if each.path.startswith("/phonetrack")]
        assert sum(len(json.loads(each.body)["points"]) for each in points) >= 3


def _kind_of(seen: Seen) -> str:
    return seen.path.split("/")[1].partition("?")[0]


def test_what_was_paused_goes_on_where_it_stopped_or_at_the_present(platform: Platform) -> None:
    server = HttpServer()
    with server.running():
        platform.worker()
        platform.put("anna", 1, server.url, "webhook")
        platform.put("anna", 2, f"{server.url}/skip", "webhook")

        def ids(path: str) -> list[str]:
            return [json.loads(each.body)["id"] for each in server.seen if each.path == path]

        platform.fixes("anna/phone", 2)
        await_condition(lambda: len(ids("/")) == len(ids("/skip")) == 2, 60, "both go")
        for number, path in ((1, ""), (2, "/skip")):
            url = f"{server.url}{path}"
            platform.put("anna", number, url, "webhook", since=0, paused_by="anna")
        await_condition(lambda: platform.shown("anna", 2)["state"] == "paused", 60, "paused")
        # The worker knows of it when another user's newer forwarding has begun.
        platform.put("bert", 1, f"{server.url}/bert", "webhook")
        platform.fixes("bert/phone", 1)
        await_condition(lambda: len(ids("/bert")) == 1, 60, "bert's")
        platform.fixes("anna/phone", 3)
        platform.fixes("bert/phone", 1)
        await_condition(lambda: len(ids("/bert")) == 2, 60, "bert's")
        assert len(ids("/")) == len(ids("/skip")) == 2
        time.sleep(0.01)  # `since` counts in milliseconds
        platform.put("anna", 1, server.url, "webhook", since=0)
        platform.put("anna", 2, f"{server.url}/skip", "webhook")
        platform.fixes("anna/phone", 1)
        await_condition(lambda: len(set(ids("/"))) == 6, 60, "all of them")
        await_condition(lambda: len(set(ids("/skip"))) == 3, 60, "only the new one")


def test_what_an_administrator_has_paused_goes_on_when_it_is_resumed(platform: Platform) -> None:
    server, other = HttpServer(), HttpServer()
    with server.running(), other.running():
        platform.worker()
        platform.put("anna", 1, server.url, "webhook")
        platform.put("bert", 1, server.url, "webhook")
        platform.put("bert", 2, other.url, "webhook")

        def ids(at: HttpServer, user: str) -> set[tuple[str, str]]:
            found = [(each.path, json.loads(each.body)) for each in list(at.seen)]
            return {(path, fix["id"]) for path, fix in found if fix["user"] == user}

        platform.fixes("anna/phone", 1)
        platform.fixes("bert/phone", 1)
        await_condition(lambda: ids(server, "anna") and ids(server, "bert"), 60, "both go")
        await_condition(lambda: ids(other, "bert"), 60, "and to the other server")
        pauses = (
            new_pause("x", "admin", 1, user="anna", host="127.0.0.1"),
            new_pause("x", "admin", 1, user="bert", forwarding=platform.id_of(1)),
        )
        for number, pause in enumerate(pauses):
            platform.put_pause(number, pause, pause.user)
        # The worker knows of it when it knows of a newer forwarding.
        platform.put("bert", 3, f"{other.url}/new", "webhook")
        await_condition(lambda: platform.shown("bert", 3)["state"] == "live", 60, "the new one")
        platform.fixes("anna/phone", 2)
        platform.fixes("bert/phone", 3)
        await_condition(lambda: len(ids(other, "bert")) == 7, 60, "others go on")
        assert (len(ids(server, "anna")), len(ids(server, "bert"))) == (1, 1)
        assert platform.shown("anna", 1)["state"] == "paused"
        # A change by the owner, and a start of the worker, change nothing.
        platform.put("anna", 1, server.url, "webhook", since=0, revision=1)
        platform.stop_workers()
        platform.worker()
        platform.fixes("bert/phone", 1)
        await_condition(lambda: len(ids(other, "bert")) == 9, 60, "others go on")
        assert (len(ids(server, "anna")), len(ids(server, "bert"))) == (1, 1)
        for number, pause in enumerate(pauses):
            platform.put_pause(number, None, pause.user)
        await_condition(lambda: len(ids(server, "anna")) == 3, 60, "anna's go on")
        await_condition(lambda: len(ids(server, "bert")) == 5, 60, "bert's go on")


def test_only_devices_of_the_owner_are_forwarded(platform: Platform) -> None:
    server = HttpServer()
    with server.running():
        platform.worker()
        platform.put("anna", 1, server.url, "webhook")
        # Somebody with the right to write to the log puts another one's fix under anna's device.
        platform.fixes("anna/phone", 3, device="bert/phone")
        platform.fixes("anna/phone", 3, device=7)
        platform.fixes("annabel/phone", 3)
        platform.fixes("anna/phone", 1)
        await_condition(lambda: server.seen, 60, "anna's own")
        assert {json.loads(each)["device"] for each in server.bodies} == {"anna/phone"}


def test_a_removed_forwarding_ends(platform: Platform) -> None:
    server = HttpServer()
    with server.running():
        platform.worker()
        platform.put("anna", 1, server.url, "webhook")
        platform.put("anna", 2, f"{server.url}/other", "webhook")
        platform.fixes("anna/phone", 1)
        await_condition(lambda: len(server.seen) == 2, 60, "both")
        platform.remove("anna", 1)
        platform.put("anna", 3, f"{server.url}/third", "webhook")
        platform.fixes("anna/phone", 1)
        # The worker reads the removal before the third one.
        await_condition(lambda: "/third" in {each.path for each in server.seen}, 60, "the third")
        before = len(server.seen)
        platform.fixes("anna/phone", 5)

        def paths() -> list[str]:
            return [each.path for each in server.seen[before:]]

        await_condition(lambda: min(map(paths().count, ("/third", "/other"))) >= 5, 60, "others")
        assert paths().count("/") < 5


def test_mqtt_servers_get_the_fixes_also_after_an_outage(
    platform: Platform, mosquitto: MosquittoServer
) -> None:
    platform.worker("--retry-backoff-max", "2")
    url = f"mqtt://127.0.0.1:{mosquitto.port}/places"
    peer = MqttPeer(mosquitto, "places/#", user=USER)
    platform.put("anna", 1, url, "mqtt", username=USER, password=PASSWORD)
    platform.put("bert", 1, url, "mqtt", username=USER, password="wrong")
    platform.fixes("bert/phone", 1)
    platform.fixes("anna/phone", 150)
    await_condition(lambda: len(peer.received) == 150, 60, "all messages")
    await_condition(lambda: platform.shown("bert", 1)["error"], 60, "it says why")
    assert "refuses" in platform.shown("bert", 1)["error"]
    peer.close()
    mosquitto.stop()
    platform.fixes("anna/phone", 20)
    await_condition(lambda: platform.shown("anna", 1)["error"], 60, "it says why")
    mosquitto.start()
    peer = MqttPeer(mosquitto, "places/#", user=USER)
    try:
        platform.fixes("anna/phone", 1)
        await_condition(lambda: peer.received, 60, "it goes on")
        topic, payload, _ = peer.received[-1]
        assert topic == "places/anna/phone"
        assert json.loads(payload)["device"] == "anna/phone"
    finally:
        peer.close()
