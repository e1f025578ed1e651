"""Mailboxes as channels of a running gateway, and the e-mail that a real server gets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from email import message_from_bytes
from email.policy import default
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import ClientSession
from hypothesis import given
from hypothesis import strategies as st

from gateway.alerts.alert_sender import Outcome
from gateway.alerts.confirmation import (
    ATTEMPTS_MAX,
    VALID_MS,
    CodeRefused,
    Pending,
    another_code,
    attempt,
    new_code,
    sent,
)
from gateway.alerts.email_sender import AWAY, REFUSED, EmailSender, message_of
from gateway.alerts.smtp_settings import BadAddress, SmtpSettings, check_address, smtp_settings
from tests.consumers.running import Broker
from tests.gateway.alerts.mail_server import Mailboxes, mail_server
from tests.gateway.alerts.test_zones_over_http import CIRCLE, ZONES, happen, refusal, signed_in
from tests.gateway.running import Gateway, answered, json_of
from waylog.config import ConfigError

CHANNELS = "/v1/alert-channels"
SENDER = "waylog@example.org"


@pytest.fixture(scope="module")
def boxes() -> Iterator[Mailboxes]:
    with mail_server() as found:
        yield found


@pytest.fixture(scope="module")
def mailing_gateway(
    gateway_broker: Broker, boxes: Mailboxes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    running = Gateway(
        tmp_path_factory.mktemp("mailing"),
        gateway_broker.address,
        *("--smtp-url", f"smtp://127.0.0.1:{boxes.port}", "--smtp-from", SENDER),
    )
    yield running
    running.close()


def mailbox(address: str) -> dict[str, str]:
    return {"name": "mine", "kind": "email", "url": f"mailto:{address}"}


def wrong(code: str) -> dict[str, str]:
    return {"code": f"{(int(code) + 1) % 10**8:08}"}


async def confirmed(client: ClientSession, boxes: Mailboxes, address: str) -> str:
    """Make a channel of a mailbox, enter its code, and return its id."""
    made = await json_of(await client.post(CHANNELS, json=mailbox(address)), 201)
    code = await asyncio.to_thread(boxes.code, address)
    path = f"{CHANNELS}/{made['id']}/confirmation"
    answer = await json_of(await client.put(path, json={"code": f" {code} "}))
    assert "unconfirmed" not in answer and "error" not in answer
    return str(made["id"])


async def test_a_mailbox_is_told_once_its_code_has_come_back(
    mailing_gateway: Gateway, boxes: Mailboxes
) -> None:
    async with signed_in(mailing_gateway, "em-ann") as (_, client):
        assert "email" in await json_of(await client.get(f"{CHANNELS}/kinds"))
        await json_of(await client.put("/v1/alert-settings", json={"language": "de"}))
        zone = await json_of(await client.post(ZONES, json=CIRCLE), 201)
        address = "Ann.Other+x@mail.example.org"
        made = await json_of(await client.post(CHANNELS, json=mailbox(address)), 201)
        assert (made["server"], made["unconfirmed"]) == (address, True)
        assert (await json_of(await client.get(CHANNELS))) == [made]
        [message] = await asyncio.to_thread(boxes.to, address)
        code = await asyncio.to_thread(boxes.code, address)
        assert code not in str(made)
        assert message["Subject"] == f"Ihr Code ist {code}"
        assert message["From"] == f"Waylog <{SENDER}>"
        assert message["Auto-Submitted"] == "auto-generated"

        # Before that it is told of nothing.
        tested = await json_of(await client.post(f"{CHANNELS}/{made['id']}/test"))
        assert "code" in tested["error"]
        path = f"{CHANNELS}/{made['id']}/confirmation"
        assert "not the code" in await refusal(await client.put(path, json=wrong(code)), 409)
        async with signed_in(mailing_gateway, "em-bob") as (_, other):
            assert (await other.put(path, json={"code": code})).status == 404
            assert (await other.post(path)).status == 404
        for body in ({}, {"code": 12345678}, {"code": code, "more": 1}):
            await refusal(await client.put(path, json=body), 400)
        shown = await json_of(await client.put(path, json={"code": code}))
        assert "unconfirmed" not in shown and "error" not in shown
        assert "needs no code" in await refusal(await client.put(path, json={"code": code}), 409)
        assert "needs no code" in await refusal(await client.post(path), 409)

        event = await asyncio.to_thread(happen, mailing_gateway, "em-ann", "leave", zone, 1)
        [_, told] = await asyncio.to_thread(boxes.to, address, 2)
        text = "phone hat School verlassen"
        assert told["Subject"] == text and told.get_content().strip() == text
        assert told["Message-ID"] == f"<{sha256(event.encode()).hexdigest()}@example.org>"
        tested = await json_of(await client.post(f"{CHANNELS}/{made['id']}/test"))
        assert tested["told"] > 0
        assert len(await asyncio.to_thread(boxes.to, address, 3)) == 3


async def test_another_address_is_confirmed_anew(
    mailing_gateway: Gateway, boxes: Mailboxes
) -> None:
    async with signed_in(mailing_gateway, "em-cara") as (_, client):
        channel = await confirmed(client, boxes, "cara@example.org")
        path = f"{CHANNELS}/{channel}"
        renamed = mailbox("cara@example.org") | {"name": "other"}
        shown = await json_of(await client.put(path, json=renamed))
        assert shown["name"] == "other" and "unconfirmed" not in shown
        moved = await json_of(await client.put(path, json=mailbox("moved@example.org")))
        assert moved["unconfirmed"]
        renamed = mailbox("moved@example.org") | {"name": "again"}
        assert (await json_of(await client.put(path, json=renamed)))["unconfirmed"]
        code = await asyncio.to_thread(boxes.code, "moved@example.org")
        shown = await json_of(await client.put(f"{path}/confirmation", json={"code": code}))
        assert "unconfirmed" not in shown


async def test_a_code_is_guessed_five_times_at_most(
    mailing_gateway: Gateway, boxes: Mailboxes
) -> None:
    async with signed_in(mailing_gateway, "em-dan") as (_, client):
        address = "dan@example.org"
        made = await json_of(await client.post(CHANNELS, json=mailbox(address)), 201)
        path = f"{CHANNELS}/{made['id']}/confirmation"
        code = await asyncio.to_thread(boxes.code, address)
        for _ in range(ATTEMPTS_MAX):
            assert "not the code" in await refusal(await client.put(path, json=wrong(code)), 409)
        assert "another one" in await refusal(await client.put(path, json={"code": code}), 409)
        await json_of(await client.post(path))
        newer = await asyncio.to_thread(boxes.code, address, 2)
        assert newer != code
        assert "not the code" in await refusal(await client.put(path, json={"code": code}), 409)
        assert "unconfirmed" not in await json_of(await client.put(path, json={"code": newer}))


async def test_a_code_holds_until_another_one_is_sent(
    mailing_gateway: Gateway, boxes: Mailboxes
) -> None:
    async with signed_in(mailing_gateway, "em-kim") as (_, client):
        address = "kim@example.org"
        made = await json_of(await client.post(CHANNELS, json=mailbox(address)), 201)
        path = f"{CHANNELS}/{made['id']}/confirmation"
        code = await asyncio.to_thread(boxes.code, address)
        boxes.answer = "451 later"
        for _ in range(2):
            assert (await json_of(await client.post(path)))["error"] == AWAY
        boxes.answer = None
        assert "not the code" in await refusal(await client.put(path, json=wrong(code)), 409)
        assert "unconfirmed" not in await json_of(await client.put(path, json={"code": code}))


def test_codes_that_were_not_sent_give_nobody_more_guesses() -> None:
    first = new_code(1000)
    waiting: Pending = first
    for _ in range(ATTEMPTS_MAX):
        waiting = another_code(waiting, 2000)
        guessed = attempt(waiting, "no code", 2000)
        assert guessed is not None
        waiting = guessed
    newest = another_code(waiting, 2000)
    left = attempt(newest, first.code, 2000)
    assert left is not None
    assert attempt(left, newest.code, 2000) is None
    assert attempt(another_code(first, 2000), first.code, 2000) is None
    assert attempt(sent(another_code(first, 2000)), first.code, 2000) is not None
    # It is not good for longer either.
    late = 1000 + VALID_MS
    assert attempt(another_code(first, 2000), first.code, late) is not None


async def test_a_server_that_is_away_costs_no_codes() -> None:
    with mail_server() as boxes:
        settings = smtp_settings(f"smtp://127.0.0.1:{boxes.port}", SENDER, None)
    sender = EmailSender(settings)
    for _ in range(6):
        assert (await sender.send_code("ann", "a@b.org", "subject", "text")).error == AWAY


async def test_nobody_is_sent_more_than_a_few_codes(
    mailing_gateway: Gateway, boxes: Mailboxes
) -> None:
    async with (
        signed_in(mailing_gateway, "em-eve") as (_, client),
        signed_in(mailing_gateway, "em-fay") as (_, other),
    ):
        made = await json_of(await client.post(CHANNELS, json=mailbox("eve@example.org")), 201)
        path = f"{CHANNELS}/{made['id']}/confirmation"
        for _ in range(4):
            assert "error" not in await json_of(await client.post(path))
        assert "too many" in (await json_of(await client.post(path)))["error"]
        # The mailbox counts for everybody, in whatever case it is written.
        theirs = mailbox("EVE@example.org")
        made = await json_of(await other.post(CHANNELS, json=theirs), 201)
        assert "too many" in made["error"]
        assert len(await asyncio.to_thread(boxes.to, "eve@example.org", 5)) == 5


async def test_what_is_no_mailbox_is_refused(mailing_gateway: Gateway, gateway: Gateway) -> None:
    async with signed_in(mailing_gateway, "em-gus") as (_, client):
        for change, reason in (
            ({"url": "https://example.org"}, "mailto:"),
            ({"url": "mailto:gus"}, "not an address"),
            ({"url": "mailto:gus@example.org?cc=all@example.org"}, "not an address"),
            ({"url": "mailto:gus@example.org,all@example.org"}, "not an address"),
            ({"url": "mailto:gus@example.org\r\nBcc: all@example.org"}, "not an address"),
            ({"url": "mailto:g\u00fcs@example.org"}, "ASCII"),
            ({"token": "x"}, "not for kind email"),
            ({"signing_secret": "x" * 40}, "not for kind email"),
            ({"pending": None}, "unknown field"),
        ):
            answer = await client.post(CHANNELS, json=mailbox("gus@example.org") | change)
            assert reason in await refusal(answer, 400), change
        assert await json_of(await client.get(CHANNELS)) == []
    async with signed_in(gateway, "em-hal") as (_, client):
        assert "email" not in await json_of(await client.get(f"{CHANNELS}/kinds"))
        answer = await client.post(CHANNELS, json=mailbox("hal@example.org"))
        assert "--smtp-url" in await refusal(answer, 400)


async def test_a_refusal_is_told_without_the_servers_words(
    mailing_gateway: Gateway, boxes: Mailboxes
) -> None:
    async with signed_in(mailing_gateway, "em-ida") as (_, client):
        path = f"{CHANNELS}/{await confirmed(client, boxes, 'ida@example.org')}/test"
        for answer, reason in (("550 account 4711 is locked", REFUSED), ("451 later", AWAY)):
            boxes.answer = answer
            assert (await json_of(await client.post(path)))["error"] == reason
        boxes.answer = None
        assert "error" not in await json_of(await client.post(path))


async def test_a_notice_comes_once_the_server_takes_it(
    mailing_gateway: Gateway, boxes: Mailboxes
) -> None:
    async with signed_in(mailing_gateway, "em-joe") as (_, client):
        await confirmed(client, boxes, "joe@example.org")
        zone = await json_of(await client.post(ZONES, json=CIRCLE), 201)
        boxes.answer = "451 later"
        event = await asyncio.to_thread(happen, mailing_gateway, "em-joe", "enter", zone)

        async def channels() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = await json_of(await client.get(CHANNELS))
            return found

        await answered(channels, lambda found: found[0].get("error") == AWAY)
        boxes.answer = None
        [_, told] = await asyncio.to_thread(boxes.to, "joe@example.org", 2)
        assert told["Message-ID"] == f"<{sha256(event.encode()).hexdigest()}@example.org>"


# --- the server ----------------------------------------------------------------------------------


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Return a server's TLS, whose authority this process trusts."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


def settings_of(
    boxes: Mailboxes, path: Path, *, user: str = "me", tls: bool = True
) -> SmtpSettings:
    path.write_text("pass word\n")
    scheme = "smtps" if tls else "smtp"
    return smtp_settings(f"{scheme}://{user}@127.0.0.1:{boxes.port}", SENDER, path)


async def test_a_server_is_signed_in_to_with_tls(
    tls: ssl.SSLContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mail_server(tls, ("me@home", "pass word")) as boxes:
        settings = settings_of(boxes, tmp_path / "password", user="me%40home")
        assert "pass word" not in repr(settings)
        sent = await EmailSender(settings).tell("ann", "ann@example.org", "text", "id")
        assert sent == Outcome(None, True)
        assert boxes.tried == [("me@home", "pass word")]
        settings = settings_of(boxes, tmp_path / "password", user="other")
        assert (await EmailSender(settings).tell("ann", "a@b.org", "text", "id")).error == REFUSED
        assert "SMTPAuthenticationError (535)" in caplog.text and "pass word" not in caplog.text


async def test_tls_is_started_where_it_is_offered(tls: ssl.SSLContext, tmp_path: Path) -> None:
    with mail_server(login=("me", "pass word"), start_tls=tls) as boxes:
        settings = settings_of(boxes, tmp_path / "password", tls=False)
        for each in (settings, settings._replace(must_start_tls=True)):
            assert (await EmailSender(each).tell("ann", "a@b.org", "text", "id")).error is None
        assert boxes.has_started_tls == [True, True]


async def test_a_certificate_of_somebody_else_is_no_server(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with mail_server(context, ("me", "pass word")) as boxes:
        settings = settings_of(boxes, tmp_path / "password")
        assert (await EmailSender(settings).tell("ann", "a@b.org", "text", "id")).error == AWAY
        assert boxes.tried == []


async def test_a_password_crosses_no_network_in_the_clear(tmp_path: Path) -> None:
    with mail_server(login=("me", "pass word")) as boxes:
        settings = settings_of(boxes, tmp_path / "password", tls=False)
        assert not settings.must_start_tls  # on this machine
        elsewhere = settings._replace(must_start_tls=True)
        outcome = await EmailSender(elsewhere).tell("ann", "a@b.org", "text", "id")
        assert outcome.error is not None and boxes.tried == []
        assert (await EmailSender(settings).tell("ann", "a@b.org", "text", "id")).error is None


@pytest.mark.parametrize(
    ("url", "sender", "reason"),
    [
        ("http://host", SENDER, "smtps://"),
        ("smtp://", SENDER, "smtps://"),
        ("smtp://host:99999", SENDER, "smtps://"),
        ("smtp://host/path", SENDER, "smtps://"),
        ("smtp://host?x=y", SENDER, "smtps://"),
        ("smtp://me:secret@host", SENDER, "--smtp-password-file"),
        ("smtp://me@host", SENDER, "go together"),
        ("smtp://host", None, "--smtp-from is missing"),
        ("smtp://host", "Waylog <a@example.org>", "--smtp-from: not an address"),
    ],
)
def test_settings_that_cannot_work_are_refused(url: str, sender: str | None, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        smtp_settings(url, sender, None)
    assert "secret" not in str(raised.value)


def test_the_password_is_a_line_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    for content in (b"", b"\n", b"two\nlines\n", b"\xff", b"x" * 10_001):
        file.write_bytes(content)
        with pytest.raises(ConfigError, match="a line with a password"):
            smtp_settings("smtps://me@host", SENDER, file)
    with pytest.raises(ConfigError, match=r"missing.*No such file"):
        smtp_settings("smtps://me@host", SENDER, tmp_path / "missing")
    with pytest.raises(ConfigError, match="go together"):
        smtp_settings("smtps://host", SENDER, file)
    file.write_bytes(b"pass\n")
    found = smtp_settings("smtp://me@mail.example.org", SENDER, file)
    assert found == ("mail.example.org", 587, False, True, "me", "pass", SENDER)
    assert smtp_settings("smtps://h.example", SENDER, None)[1:4] == (465, True, False)
    for local in ("localhost", "127.0.0.2", "[::1]"):
        assert not smtp_settings(f"smtp://{local}", SENDER, None).must_start_tls


def test_a_code_is_good_for_an_hour() -> None:
    pending = new_code(1000)
    assert attempt(pending, pending.code, 999 + VALID_MS) is None
    with pytest.raises(CodeRefused):
        attempt(pending, pending.code, 1000 + VALID_MS)
    assert pending.code not in repr(pending)


@given(
    st.one_of(
        st.emails(), st.text(), st.from_regex(r"[a-z\"\\,;:()<> @.\r\n-]{1,20}@[a-z.-]{1,9}")
    ),
    st.text(),
)
def test_a_message_goes_to_one_mailbox_whatever_it_says(address: str, text: str) -> None:
    try:
        check_address(address)
    except BadAddress:
        return
    sent = message_of(SENDER, address, text, text, text)
    read = message_from_bytes(sent.as_bytes(), policy=default)
    assert [each.addr_spec for each in read["To"].addresses] == [address]
    assert sorted(read.keys()) == sorted(sent.keys())
    assert len(read.keys()) == len(set(read.keys()))
