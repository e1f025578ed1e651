"""Receipts of forwardings, beside the worker that sends them: a real log, and real servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.consumers.connect.http.http_server import HttpServer
from tests.consumers.forwarding.running import LOOPBACK, Platform, lats
from tests.consumers.running import await_condition
from tests.waylog.audit.running import DAY_MS, AuditedLog
from waylog.forwarding import reach
from waylog.forwarding.definition import GROUP, Progress
from waylog.forwarding.keys import FORWARDING_KEY, forwarding_keys
from waylog.forwarding.pauses import Pause
from waylog.kafka.clients import client_config, producer_config
from waylog.kafka.topics import FORWARDING_PROGRESS, LOCATION

pytestmark = pytest.mark.early

#: A zone in which it is about noon: the day of a run near midnight would be another at its end.
ZONE = f"Etc/GMT{time.gmtime().tm_hour - 12:+d}"
COUNTS = ("sent", "waiting", "refused", "missed", "not_asked", "unknown")
RETRIES = ("--retry-backoff-max", "1")


class Audited:
    """A log with forwardings, its workers, and what `waylog audit` says of them."""

    def __init__(self, folder: Path) -> None:
        self.log = AuditedLog(folder)
        self.platform = Platform(self.log.servers, folder)

    def close(self) -> None:
        self.platform.close()
        self.log.close()

    def device(self, device: str) -> dict[str, Any]:
        """Return the receipt of a device for today."""
        status, (receipt,) = self.log.audit("device", device, "--timezone", ZONE)
        assert status == 0, "what a user's server has not got is not lacking"
        found: dict[str, Any] = receipt
        return found

    def forwarding(self, device: str, number: int) -> dict[str, Any]:
        """Return what the receipt of a device has of one of its owner's forwardings."""
        wanted = self.platform.id_of(number)
        shown: list[dict[str, Any]] = self.device(device)["forwardings"]
        (found,) = [each for each in shown if each["id"] == wanted]
        return found

    def counts(self, device: str, number: int) -> dict[str, int]:
        """Return the counts of a forwarding that are not zero."""
        found = self.forwarding(device, number)
        return {name: found[name] for name in COUNTS if found[name]}

    def await_counts(self, device: str, number: int, **counts: int) -> None:
        await_condition(
            lambda: self.counts(device, number) == counts, 60, f"{device}: {counts} are told"
        )

    def fix(self, identity: str, device: str) -> dict[str, Any]:
        """Return the receipt of a fix, whose id tells no time."""
        words = ("fix", identity, "--device", device, "--day", "today", "--timezone", ZONE)
        status, (receipt,) = self.log.audit(*words)
        assert status == 0
        found: dict[str, Any] = receipt
        return found

    def printed(self, *words: str) -> str:
        return self.log.printed(*words, "--timezone", ZONE)[1]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    folder = tmp_path_factory.mktemp("audited")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAYLOG_DATA", str(folder / "data"))
        found = Audited(folder)
        patch.setenv(FORWARDING_KEY, str(found.platform.key_file))
        forwarding_keys.cache_clear()  # this process has looked for a key before
        try:
            yield found
        finally:
            forget_keys(found.log.servers)
            found.close()


def forget_keys(servers: str) -> None:
    """Have this process look for a key anew."""
    if forwarding_keys.cache_info().currsize and (ring := forwarding_keys(servers)) is not None:
        ring.close()
    forwarding_keys.cache_clear()


@pytest.fixture
def audited(running: Audited) -> Iterator[Audited]:
    """Yield what all tests share, without the forwardings of others."""
    yield running
    running.platform.forget()


def id_of(lat: str) -> str:
    """Return the id of a fix by its latitude; see Platform.fixes."""
    return f"fix-{round(float(lat) * 100_000)}"


def test_each_forwarding_tells_what_it_has_sent_and_of_which_devices(audited: Audited) -> None:
    platform, server, other = audited.platform, HttpServer(), HttpServer()
    before = platform.fixes("anna/phone", 5)
    assert audited.device("anna/phone")["forwardings"] == []
    with server.running(), other.running():
        secret = {"username": "anna", "password": "pass-word-1"}
        platform.put("anna", 1, f"{server.url}/path-secret", name="home", **secret)
        platform.put("anna", 2, f"{server.url}/", name="rides", devices=("bike",))
        platform.put("bert", 3, f"{other.url}/", name="berts-own")
        new = audited.forwarding("anna/phone", 1)
        assert (new["state"], new["not_asked"], new["positions"]) == ("new", 5, [])
        platform.worker(*RETRIES)
        sent = platform.fixes("anna/phone", 20)
        rides = platform.fixes("anna/bike", 3)
        await_condition(lambda: set(sent + rides) <= set(lats(server)), 30, "fixes")
        audited.await_counts("anna/phone", 1, sent=20, not_asked=5)
        receipt = audited.device("anna/phone")
        assert [each["name"] for each in receipt["forwardings"]] == ["home", "rides"]
        home, not_the_phone = receipt["forwardings"]
        assert home["forwards"] and home["until"] == receipt["last_received"]
        assert (home["kind"], home["url"]) == ("traccar", f"{server.url}/...")
        # The offset behind the newest fix, in the partition that has the phone.
        (position,) = home["positions"]
        place = audited.fix(id_of(sent[-1]), "anna/phone")["places"][0]
        assert position["partition"] == place["partition"]
        assert position["offset"] > place["offset"]
        # It sends no phone, and says of none that it has.
        assert not not_the_phone["forwards"]
        assert not any(not_the_phone[name] for name in COUNTS)
        audited.await_counts("anna/bike", 1, sent=3)
        audited.await_counts("anna/bike", 2, sent=3)
        # One by one.
        for lat, outcome in ((before[0], "not_asked"), (sent[0], "sent"), (sent[-1], "sent")):
            first, second = audited.fix(id_of(lat), "anna/phone")["forwardings"]
            assert {name: first[name] for name in COUNTS if first[name]} == {outcome: 1}
            assert not second["forwards"]
        text = audited.printed("fix", id_of(before[0]), "--day", "today")
        assert "has not been asked for it: it was made later" in text
        assert "rides (traccar" in text and "does not send this device" in text
        assert "home" in text and "has sent it" in audited.printed(
            "fix", id_of(sent[0]), "--day", "today"
        )
    # Nobody else's, and no secrets.
    words = (("device", "anna/phone"), ("fix", id_of(sent[0]), "--day", "today"))
    texts = [audited.printed(*each, *more) for each in words for more in ((), ("--json",))]
    for secret_text in ("pass-word-1", "path-secret", "berts-own", other.url):
        assert not any(secret_text in text for text in texts)
    assert "20 sent up to" in texts[0] and "5 from before it was made" in texts[0]
    _, (*receipts, totals) = audited.log.audit("day", "--timezone", ZONE)
    by_device = {each["device"]: each for each in receipts}
    assert [each["sent"] for each in by_device["anna/bike"]["forwardings"]] == [3, 3]
    told = totals["forwardings"]
    assert (told["forwardings"], told["sent"], told["not_asked"]) == (2, 26, 5)
    assert "26 sent; forwardings: 2 live" in audited.printed("day")


def test_what_waits_is_told_with_the_reason_until_it_is_sent(audited: Audited) -> None:
    platform, up, down = audited.platform, HttpServer(), HttpServer()
    with up.running():
        platform.worker(*RETRIES)
        platform.put("carl", 1, f"{up.url}/", name="up")
        platform.put("carl", 2, f"{down.url}/", name="down")
        # More than may wait: the group goes on without it.
        fixes = platform.fixes("carl/phone", 600)
        audited.await_counts("carl/phone", 1, sent=600)
        await_condition(
            lambda: audited.forwarding("carl/phone", 2)["state"] == "failing", 60, "it fails"
        )
        failing = audited.forwarding("carl/phone", 2)
        assert audited.counts("carl/phone", 2) == {"waiting": 600}
        assert down.url.partition("//")[2] in failing["error"]
        assert failing["since"] is not None and failing["until"] is None
        text = audited.printed("device", "carl/phone")
        assert "600 waiting since" in text and "failing since" in text and failing["error"] in text
        found = audited.fix(id_of(fixes[0]), "carl/phone")
        assert [each["waiting"] for each in found["forwardings"]] == [1, 0]
        # Its owner pauses it; an administrator all that lead to the other one's server.
        platform.put("carl", 2, f"{down.url}/", name="down", paused_by="carl", since=0, created=0)
        pause = Pause(reason="it was asked for", by="root", time=1, host="127.0.0.1")
        platform.put_pause(3, pause)
        more = platform.fixes("carl/phone", 2)
        audited.await_counts("carl/phone", 1, sent=600, waiting=2)
        of_down, of_up = audited.device("carl/phone")["forwardings"]
        assert (of_up["state"], of_down["state"]) == ("paused", "paused")
        assert of_up["paused_by_administrator"]["reason"] == "it was asked for"
        assert of_down["paused_by"] == "carl"
        text = audited.printed("fix", id_of(more[0]), "--day", "today")
        assert "has not sent it yet; paused by an administrator: it was asked for" in text
        assert "root" not in text
        platform.put_pause(3, None)
        platform.put("carl", 2, f"{down.url}/", name="down", since=0, created=0)
        with down.running():
            for number in (1, 2):
                audited.await_counts("carl/phone", number, sent=602)
        assert set(fixes + more) <= set(lats(down))


def test_what_a_server_refuses_is_told_with_its_reason(audited: Audited) -> None:
    platform, server = audited.platform, HttpServer()
    with server.running():
        platform.worker(*RETRIES)
        refused: list[str] = []
        server.answer = lambda seen: (
            (404, "no such device") if any(f"lat={lat}&" in seen.path for lat in refused) else None
        )
        platform.put("dora", 1, f"{server.url}/")
        sent = platform.fixes("dora/phone", 2)
        await_condition(lambda: set(sent) <= set(lats(server)), 30, "the first ones")
        server.answer = lambda _: (404, "no such device")
        refused += platform.fixes("dora/phone", 3)
        audited.await_counts("dora/phone", 1, sent=2, refused=3)
        (reason,) = audited.forwarding("dora/phone", 1)["reasons"]
        assert reason["count"] == 3 and "404 Not Found: no such device" in reason["reason"]
        (one,) = audited.fix(id_of(refused[0]), "dora/phone")["forwardings"]
        assert (one["refused"], one["sent"]) == (1, 0)
        assert "was refused it: " in audited.printed("fix", id_of(refused[0]), "--day", "today")
        (one,) = audited.fix(id_of(sent[0]), "dora/phone")["forwardings"]
        assert (one["refused"], one["sent"]) == (0, 1)


def test_a_fix_that_came_again_is_sent_if_one_of_its_records_is(audited: Audited) -> None:
    platform, server = audited.platform, HttpServer()
    with server.running():
        platform.worker(*RETRIES)
        platform.fixes("emil/phone", 1, id="again")
        stored = audited.device("emil/phone")["last_received"]
        await_condition(lambda: time.time() * 1000 > stored + 10, 30, "it is some time ago")
        platform.put("emil", 1, f"{server.url}/")
        platform.fixes("emil/phone", 1, id="again")
        await_condition(lambda: len(server.seen) == 1, 30, "the second record")
        await_condition(
            lambda: audited.fix("again", "emil/phone")["forwardings"][0]["sent"], 30, "it is told"
        )
        assert len(audited.fix("again", "emil/phone")["places"]) == 2


def test_what_the_log_deletes_before_it_is_sent_is_told(audited: Audited) -> None:
    platform, log, down = audited.platform, audited.log, HttpServer()
    platform.stop_workers()
    platform.start(*LOOPBACK, *RETRIES)
    platform.put("fred", 1, f"{down.url}/")
    fixes = platform.fixes("fred/phone", 600)
    # Nothing waits for it any more: it is behind.
    await_condition(
        lambda: audited.forwarding("fred/phone", 1)["positions"], 60, "it has its own offset"
    )
    platform.stop_workers()
    log.write_history()
    place = audited.fix(id_of(fixes[99]), "fred/phone")["places"][0]
    admin = AdminClient(client_config(log.servers, "test"))
    deleted = TopicPartition(LOCATION, place["partition"], place["offset"] + 1)
    admin.delete_records([deleted])[deleted].result(30)
    assert audited.counts("fred/phone", 1) == {"missed": 100, "waiting": 500}
    assert "100 deleted before they could be sent" in audited.printed("device", "fred/phone")
    with down.running():
        platform.start(*LOOPBACK, *RETRIES)
        audited.await_counts("fred/phone", 1, sent=500, missed=100)
    assert "100 deleted before they could be sent" in audited.printed("device", "fred/phone")


def test_what_was_sent_before_the_log_deleted_others_stays_sent(audited: Audited) -> None:
    platform, log, server = audited.platform, audited.log, HttpServer()
    with server.running():
        platform.stop_workers()
        platform.start(*LOOPBACK, *RETRIES)
        platform.put("lena", 1, f"{server.url}/")
        platform.fixes("lena/phone", 3)
        audited.await_counts("lena/phone", 1, sent=3)
        platform.put("lena", 1, f"{server.url}/", paused_by="lena", since=0, created=0)
        await_condition(
            lambda: audited.forwarding("lena/phone", 1)["state"] == "paused", 30, "it is paused"
        )
        fixes = platform.fixes("lena/phone", 5)
        audited.await_counts("lena/phone", 1, sent=3, waiting=5)
        log.write_history()
        place = audited.fix(id_of(fixes[2]), "lena/phone")["places"][0]
        admin = AdminClient(client_config(log.servers, "test"))
        deleted = TopicPartition(LOCATION, place["partition"], place["offset"] + 1)
        admin.delete_records([deleted])[deleted].result(30)
        audited.await_counts("lena/phone", 1, sent=3, waiting=2, missed=3)
        platform.put("lena", 1, f"{server.url}/", since=0, created=0)
        audited.await_counts("lena/phone", 1, sent=5, missed=3)
        assert platform.shown("lena", 1)["missed"] == 3


def test_what_comes_behind_a_change_of_the_server_is_sent_to_the_new_one(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long this takes, what is told is no matter of time.
    monkeypatch.setattr(reach, "_CHANGE_MS", DAY_MS)
    platform, old, new = audited.platform, HttpServer(), HttpServer()
    with old.running(), new.running():
        platform.worker(*RETRIES)
        now = time.time_ns() // 1_000_000
        made: dict[str, Any] = {"created": now, "since": now}
        platform.put("mona", 1, f"{old.url}/", settled=now, **made)
        platform.fixes("mona/phone", 2)
        audited.await_counts("mona/phone", 1, sent=2)
        settled = time.time_ns() // 1_000_000
        platform.put("mona", 1, f"{new.url}/", settled=settled, revision=1, **made)
        # The worker knows of it when it knows of another one that was made later.
        platform.put("mona", 2, f"{old.url}/other", revision=1)
        platform.fixes("mona/phone", 1)
        await_condition(lambda: any("/other" in each.path for each in old.seen), 30, "the other")
        sent = platform.fixes("mona/phone", 3)
        await_condition(lambda: set(sent) <= set(lats(new)), 30, "the new server")
        first = len(lats(new)) - 3  # the one before them may have gone to either
        audited.await_counts("mona/phone", 1, sent=3 + first, unknown=3 - first)
        (reason,) = audited.forwarding("mona/phone", 1)["unknown_because"]
        assert "were changed later" in reason["reason"]


def test_what_is_behind_an_open_transaction_is_not_known_yet(audited: Audited) -> None:
    platform, log = audited.platform, audited.log
    platform.stop_workers()
    platform.put("jana", 1, "https://example.org/")
    (lat,) = platform.fixes("jana/phone", 1)
    place = audited.fix(id_of(lat), "jana/phone")["places"][0]
    partition, offset = place["partition"], place["offset"]
    platform.put_progress("jana", 1, partition, Progress(offset=offset, live=True))
    log.commit(GROUP, {partition: offset})
    assert audited.counts("jana/phone", 1) == {"waiting": 1}
    # One worker is killed while it writes; another one lets the group go on without its forwarding.
    killed = Producer(producer_config(log.servers, "test", transactional_id="killed"))
    killed.init_transactions(60)
    killed.begin_transaction()
    killed.produce(FORWARDING_PROGRESS, None, b"nobody\n0123456789abcdef\n0")
    assert killed.flush(60) == 0
    platform.put_progress("jana", 1, partition, Progress(offset=offset))
    log.commit(GROUP, {partition: offset + 1})
    receipt = audited.device("jana/phone")
    assert receipt["forwardings"] is None
    assert [each for each in receipt["unknown"] if "have yet to be read" in each]
    killed.abort_transaction(60)
    assert audited.counts("jana/phone", 1) == {"waiting": 1}


def test_without_their_key_forwardings_are_unknown_and_say_why(
    audited: Audited, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    platform = audited.platform
    platform.put("gina", 1, "https://example.org/")
    platform.fixes("gina/phone", 1)
    platform.fixes("hans/phone", 1)

    def told(device: str) -> list[str]:
        forget_keys(platform.servers)
        receipt = audited.device(device)
        unknown = [each for each in receipt["unknown"] if "what forwardings have sent" in each]
        assert receipt["forwardings"] == (None if unknown else [])
        return unknown

    monkeypatch.delenv(FORWARDING_KEY)
    (why,) = told("gina/phone")
    assert FORWARDING_KEY in why
    assert told("hans/phone") == [], "who has none has none"
    monkeypatch.setenv(FORWARDING_KEY, str(tmp_path / "missing"))
    (why,) = told("gina/phone")
    assert str(tmp_path / "missing") in why


def test_workers_of_another_group_are_told_by_its_name(audited: Audited) -> None:
    platform, server = audited.platform, HttpServer()
    with server.running():
        platform.stop_workers()
        platform.put("ines", 1, f"{server.url}/")
        platform.start(*LOOPBACK, "--group", "of-others")
        platform.fixes("ines/phone", 3)
        await_condition(lambda: len(server.seen) == 3, 60, "all are sent")
        words = ("device", "ines/phone", "--timezone", ZONE, "--forwarding-group")

        def told(group: str) -> dict[str, Any]:
            (found,) = audited.log.audit(*words, group)[1][0]["forwardings"]
            return {name: found[name] for name in COUNTS if found[name]}

        await_condition(lambda: told("of-others") == {"sent": 3}, 60, "it is told")
        assert told("of-nobody").keys() <= {"sent", "unknown"}
        platform.stop_workers()
