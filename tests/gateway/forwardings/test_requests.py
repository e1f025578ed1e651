"""What users may ask for."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from consumers.connect.http.properties import Settings
from consumers.connect.http.templates.by_name import TEMPLATES as OF_THE_SINK
from consumers.forwarding.http_delivery import settings_of
from gateway.forwardings.requests import BadForwarding, changed_forwarding, new_forwarding
from waylog.forwarding.definition import (
    KINDS,
    MQTT,
    TEMPLATES,
    Forwarding,
    decode_forwarding,
    encode,
)
from waylog.forwarding.shown import shown
from waylog.malformed import MALFORMED

GOOD = {"name": "home", "kind": "home-assistant", "url": "https://ha.example.org/api/webhook/s3cr"}
SECRETS = {
    "username": "anna",
    "password": "pass-word-1",
    "url": "https://example.org/path-secret?key=query-secret",
}


def body(**members: Any) -> bytes:
    return json.dumps(GOOD | members).encode()


def test_kinds_are_those_of_the_http_sink() -> None:
    assert set(TEMPLATES) == set(OF_THE_SINK)


@pytest.mark.parametrize("kind", [each for each in KINDS if each != MQTT])
def test_what_is_accepted_can_be_sent(kind: str) -> None:
    made = new_forwarding(body(kind=kind, token="t0ken"), 5)
    settings = settings_of("anna", decode_forwarding(encode(made)), 1000)
    assert isinstance(settings, Settings)
    assert settings.headers == {"Authorization": "Bearer t0ken"}


def test_names_of_devices_reach_the_template() -> None:
    made = new_forwarding(body(kind="traccar", device_names={"phone": "4711"}), 5)
    assert settings_of("anna", made, 1000).template._names.get("anna/phone", "") == "4711"  # type: ignore[attr-defined]


BAD: tuple[dict[str, Any], ...] = (
    {"kind": "carrier-pigeon"},
    {"kind": None},
    {"name": ""},
    {"name": "x" * 101},
    {"name": "a\nb"},
    {"url": "ftp://example.org"},
    {"url": "https://"},
    {"url": "https://example.org:0/"},
    {"url": "https://example.org:port/"},
    {"url": "https://user:geheim@example.org/"},
    {"url": "https://${user}.example.org/"},
    {"url": "https://example.org/a b"},
    {"url": "https://example.org/\n"},
    {"url": "https://[::1"},
    {"url": "http://2130706433/"},
    {"url": "https://exämple.org/"},
    {"url": "mqtt://example.org"},
    {"kind": "mqtt"},
    {"kind": "mqtt", "url": "mqtt://example.org/a/#"},
    {"kind": "mqtt", "url": "mqtt://example.org/a/+"},
    {"kind": "mqtt", "url": "mqtt://example.org/a", "token": "t"},
    {"devices": []},
    {"devices": ["anna/phone"]},
    {"devices": ["x"] * 101},
    {"device_names": {"phone": "a,b"}},
    {"device_names": {"phone": "a=b"}},
    {"kind": "webhook", "device_names": {"phone": "4711"}},
    {"password": "p"},
    {"token": "t", "username": "u"},
    {"token": "t\nX-Evil: 1"},
    {"username": "a:b"},
    {"signing_secret": "s" * 24},
    {"kind": "webhook", "signing_secret": "whsec_%%"},
    {"kind": "webhook", "signing_secret": "s3cr-of-too-few-bytes.."},
    {"kind": "webhook", "signing_secret": "whsec_" + "s3cr" * 7 + "s3w="},
    {"paused_by": "admin"},
    {"created": 1},
    {"since": 0},
)


@pytest.mark.parametrize("members", BAD, ids=str)
def test_what_cannot_be_sent_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises((BadForwarding, *MALFORMED)) as refusal:
        new_forwarding(body(**members), 5)
    assert not any(each in str(refusal.value) for each in ("s3cr", "geheim", "%%"))


@pytest.mark.parametrize("name", ["name", "kind", "url"])
def test_what_is_needed_is_named(name: str) -> None:
    members = {key: value for key, value in GOOD.items() if key != name}
    with pytest.raises(BadForwarding, match=f"{name} is missing"):
        new_forwarding(json.dumps(members).encode(), 5)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 10_000])
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(MALFORMED):
        new_forwarding(text, 5)


def test_secrets_are_not_shown() -> None:
    made = new_forwarding(body(kind="webhook", signing_secret="sign-secret" * 3, **SECRETS), 5)
    text = msgspec.json.encode(shown("1", made, {})).decode() + repr(made)
    for secret in ("pass-word-1", "path-secret", "query-secret", "sign-secret"):
        assert secret not in text
    told = shown("1", made, {})
    assert (told["password"], told["signing_secret"], told["token"]) == ("set", "set", None)
    assert told["url"] == "https://example.org/..."


def test_a_change_keeps_what_it_does_not_name() -> None:
    made = new_forwarding(body(**SECRETS), 5)
    found = changed_forwarding(made, b'{"name":"other","devices":["phone"]}', 9)
    assert (found.name, found.devices, found.password) == ("other", ("phone",), "pass-word-1")
    assert found.revision == made.revision + 1
    found = changed_forwarding(found, b'{"devices":null,"username":null,"password":null}', 9)
    assert (found.devices, found.username, found.password) == (None, None, None)


def test_a_change_of_devices_or_server_is_noted_with_its_time() -> None:
    made = new_forwarding(body(**SECRETS), 5)
    assert made.settled == 5
    for asked, settled in (
        (b'{"name":"other"}', 5),
        (b'{"password":"new"}', 5),
        (b'{"devices":["phone"]}', 9),
        (b'{"url":"https://example.org/other"}', 9),
        (b'{"kind":"webhook","device_names":{}}', 9),
    ):
        assert changed_forwarding(made, asked, 9).settled == settled, asked


def test_secrets_do_not_go_to_another_server() -> None:
    made = new_forwarding(body(**SECRETS), 5)
    with pytest.raises(BadForwarding, match="password has to be set again"):
        changed_forwarding(made, b'{"url":"https://elsewhere.example.org/"}', 9)
    same = changed_forwarding(made, b'{"url":"https://example.org/other"}', 9)
    assert same.password == "pass-word-1"
    elsewhere = b'{"url":"https://elsewhere.example.org/","password":"new"}'
    found = changed_forwarding(made, elsewhere, 9)
    assert found.password == "new"


@pytest.mark.parametrize("secret", ["x" * 24, "whsec_" + "A" * 32, "é" * 12])
def test_a_signing_secret_is_long_enough_for_standard_webhooks(secret: str) -> None:
    made = new_forwarding(body(kind="webhook", signing_secret=secret), 5)
    assert made.signing_secret == secret


def test_a_short_signing_secret_that_was_taken_before_goes_on_and_no_new_one_is_taken() -> None:
    long_ago = Forwarding(
        name="old", kind="webhook", url="https://example.org/", signing_secret="short",
        created=0, since=0,
    )  # fmt: skip
    assert changed_forwarding(long_ago, b'{"name":"other"}', 9).signing_secret == "short"
    with pytest.raises(BadForwarding, match="has 6 bytes, and has to have 24 or more"):
        changed_forwarding(long_ago, b'{"signing_secret":"short2"}', 9)
