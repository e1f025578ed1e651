from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from gateway.fixes.submit import Submitter
from gateway.formats import BATCH_ITEMS_MAX, owntracks
from gateway.limits.error_bytes import CUT, ErrorBytes
from gateway.limits.token_buckets import TokenBuckets
from gateway.mqtt.packets.packets import ReasonCode
from gateway.mqtt.publishing.ingest import Ingest
from gateway.mqtt.rights.acl import AccessRules
from gateway.users.admission import REFUSALS_PER_MINUTE, Admission, QuotaExceeded
from gateway.users.auth import Identity
from gateway.users.rights import Rights
from tests.gateway import records
from tests.gateway.mqtt.in_memory import MemoryLog, User
from waylog.messages import decode_rejected

ALICE = User("alice")
LOCATION = {
    "_type": "location",
    "lat": 50.73,
    "lon": 7.1,
    "tst": 1761994805,
    "tid": "ab",
    "batt": 72,
}


def submit(log: MemoryLog, topic: str, payload: Any, identity: User = ALICE) -> tuple[int, int]:
    """Submit a message; return the reason code and the number of appends to wait for."""
    ingest = Ingest(log, AccessRules(), lambda: 1_761_994_806_000, Counter())
    body = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
    code, futures = ingest.submit(identity, ingest.route(identity, topic), body)
    return code, len(futures)


async def test_an_owntracks_location_is_a_fix_of_the_topics_device() -> None:
    log = MemoryLog()
    assert submit(log, "owntracks/alice/phone", LOCATION) == (0, 1)
    (fix,) = log.fixes
    assert (fix.device, fix.user, fix.lat, fix.lon) == ("alice/phone", "alice", 50.73, 7.1)
    assert fix.time == 1_761_994_805_000
    assert fix.received == 1_761_994_806_000
    assert fix.source == "owntracks"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
async def test_a_payload_with_a_byte_order_mark_is_read(encoding: str) -> None:
    log = MemoryLog()
    text = msgspec.json.encode(LOCATION).decode()
    assert submit(log, "owntracks/alice/phone", text.encode(encoding)) == (0, 1)
    assert submit(log, "devices/alice/watch/position", text.encode(encoding)) == (0, 1)
    assert [fix.device for fix in log.fixes] == ["alice/phone", "alice/watch"]


async def test_our_own_json_may_hold_many_positions() -> None:
    log = MemoryLog()
    positions = [{"lat": 50.0 + n, "lon": 7.0, "time": 1_761_994_805_000 + n} for n in range(3)]
    assert submit(log, "devices/alice/phone/position", positions) == (0, 3)
    assert [fix.lat for fix in log.fixes] == [50.0, 51.0, 52.0]
    assert {fix.device for fix in log.fixes} == {"alice/phone"}


async def test_a_body_cannot_name_the_device_of_somebody_else() -> None:
    log = MemoryLog()
    body = {"lat": 50.0, "lon": 7.0, "time": 1_761_994_805_000, "device": "bob/phone"}
    submit(log, "devices/alice/phone/position", body)
    submit(log, "owntracks/alice/phone", LOCATION | {"topic": "owntracks/bob/phone"})
    assert {fix.device for fix in log.fixes} == {"alice/phone"}


@pytest.mark.parametrize(
    ("topic", "payload", "kind"),
    [
        ("owntracks/alice/phone", {"_type": "lwt"}, "lwt"),
        (
            "owntracks/alice/phone/event",
            {"_type": "transition", "event": "enter", "tst": 1761994805, "wtst": 1, "acc": 5},
            "transition",
        ),
        (
            "owntracks/alice/phone/waypoint",
            {"_type": "waypoint", "desc": "Office", "tst": 1761994805, "lat": 50.0, "lon": 7.0},
            "waypoint",
        ),
    ],
)
async def test_what_is_not_a_fix_is_an_event(topic: str, payload: Any, kind: str) -> None:
    log = MemoryLog()
    assert submit(log, topic, payload) == (0, 1)
    assert [event.type for event in log.events] == [kind]
    assert log.fixes == []


async def test_what_can_never_be_accepted_is_kept_and_acknowledged_and_not_passed_on() -> None:
    log = MemoryLog()
    code, count = submit(log, "owntracks/alice/phone", b"not json")
    assert (code, count) == (ReasonCode.NO_MATCHING_SUBSCRIBERS, 1)
    assert log.rejected[0].raw == b"not json"
    assert log.rejected[0].device == "alice/phone"


async def test_encrypted_messages_are_kept_and_passed_on_to_those_who_have_the_key() -> None:
    log = MemoryLog()
    body = b'{"_type":"encrypted","data":"xxxx"}'
    assert submit(log, "owntracks/alice/phone", body) == (0, 1)
    assert log.rejected[0].raw == body


async def test_publishing_for_somebody_else_is_recorded_and_refused() -> None:
    log = MemoryLog()
    code, count = submit(log, "owntracks/bob/phone", LOCATION)
    assert (code, count) == (ReasonCode.NOT_AUTHORIZED, 1)
    assert log.fixes == []
    (rejected,) = log.rejected
    assert rejected.user == "alice"
    assert rejected.headers == {"topic": "owntracks/bob/phone"}
    # An erasure of bob's phone does not erase what alice tried.
    assert rejected.device is None


async def test_nobody_but_the_platform_says_an_address() -> None:
    log = MemoryLog()
    topic = "devices/alice/phone/address"
    assert submit(log, topic, {}, User("root", admin=True))[0] == ReasonCode.NOT_AUTHORIZED


@pytest.mark.parametrize(
    "topic",
    [
        "owntracks/alice/phone/cmd",
        "owntracks/alice/phone/info",
        "devices/alice/phone/other",
        "owntracks/alice",
        "owntracks/alice/phone/a/b",
    ],
)
async def test_what_clients_say_to_each_other_does_not_touch_the_log(topic: str) -> None:
    log = MemoryLog()
    assert submit(log, topic, b"anything") == (0, 0)
    assert (log.fixes, log.events, log.rejected) == ([], [], [])


async def test_an_empty_payload_stores_nothing() -> None:
    assert submit(MemoryLog(), "owntracks/alice/phone", b"") == (0, 0)


async def test_a_parser_that_fails_does_not_make_a_phone_repeat_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_body: bytes, _context: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(owntracks, "parse", broken)
    log = MemoryLog()
    code, count = submit(log, "owntracks/alice/phone", LOCATION)
    assert (code, count) == (ReasonCode.NO_MATCHING_SUBSCRIBERS, 1)
    assert log.rejected[0].reason == "the parser failed"
    assert "50.73" not in caplog.text


class Anything(AccessRules):
    """Rules by which users may publish for each other."""

    def may_publish(self, identity: object, topic: str) -> bool:
        return True


async def test_who_publishes_junk_for_another_pays_for_it_but_not_an_administrator() -> None:
    log = records.MemoryLog()
    kept = ErrorBytes(TokenBuckets(clock=lambda: 1_000.0), per_minute=100)
    submitter = Submitter(
        log, records.MemoryTelemetry(), asyncio.get_running_loop(), error_bytes=kept
    )
    ingest = Ingest(submitter, Anything(), lambda: 1, Counter())
    ada, root = Identity("ada"), Identity("root", admin=True)

    def is_whole(identity: Identity, user: str) -> bool:
        route = ingest.route(identity, f"owntracks/{user}/phone")
        ingest.submit(identity, route, b"junk " * 200)
        return CUT not in (decode_rejected(log.appended[-1][2]).headers or {})

    assert is_whole(ada, "bob")
    assert not is_whole(ada, "ada")
    # What comes from another cluster counts for the user that it names.
    assert is_whole(root, "bob")
    assert not is_whole(root, "bob")
    assert is_whole(root, "carl")
    log.acknowledge()


async def test_a_refused_connect_counts_for_its_address_not_for_the_user_that_it_names() -> None:
    log = records.MemoryLog()
    kept = ErrorBytes(TokenBuckets(clock=lambda: 1_000.0), per_minute=100)
    submitter = Submitter(
        log, records.MemoryTelemetry(), asyncio.get_running_loop(), error_bytes=kept
    )
    ingest = Ingest(submitter, AccessRules(), lambda: 1, Counter())

    def is_whole() -> bool:
        return CUT not in (decode_rejected(log.appended[-1][2]).headers or {})

    def is_kept_whole(address: str) -> bool:
        ingest.refused_connect("bob", "junk " * 100, "CONNECT: wrong password", address)
        return is_whole()

    assert [is_kept_whole("192.0.2.1") for _ in range(3)] == [True, True, False]
    assert is_kept_whole("192.0.2.2")
    # Nothing of it is erased with the user either.
    assert {key for _, key, _, _ in log.appended} == {None}
    bob = Identity("bob")
    ingest.submit(bob, ingest.route(bob, "owntracks/bob/phone"), b"junk " * 200)
    assert is_whole()
    log.acknowledge()


async def test_each_refused_message_costs_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    log, admission = MemoryLog(), Admission.in_memory(clock=lambda: 1.0)
    ingest = Ingest(log, AccessRules(), lambda: 1, Counter(), admission=admission)

    def submit_all(identity: Identity, topic: str, payload: bytes = b"{}") -> int:
        """Submit until the quota is used up; return how many were taken."""
        for taken in range(2 * REFUSALS_PER_MINUTE):
            try:
                ingest.submit(identity, ingest.route(identity, topic), payload)
            except QuotaExceeded:
                return taken
        raise AssertionError("nothing is counted")

    ada = Identity("ada", rights=Rights(fixes_per_minute=5))
    assert submit_all(ada, "owntracks/bob/phone") == 5
    assert submit_all(Identity("eve"), "owntracks/bob/phone") == REFUSALS_PER_MINUTE
    looking = Identity("looking", rights=Rights(may_send=False, fixes_per_minute=5))
    assert submit_all(looking, "owntracks/looking/phone") == REFUSALS_PER_MINUTE

    # What is refused for its contents counts as well, except of administrators.
    frank = Identity("frank")
    assert submit_all(frank, "owntracks/frank/phone", b"x") == REFUSALS_PER_MINUTE
    root = Identity("root", admin=True)
    with pytest.raises(AssertionError, match="nothing is counted"):
        submit_all(root, "owntracks/root/phone", b"x")

    too_many = b"[" + b"{}," * BATCH_ITEMS_MAX + b"{}]"
    dora = Identity("dora", rights=Rights(fixes_per_minute=5))
    assert submit_all(dora, "devices/dora/phone/position", too_many) == 5

    def broken(_body: bytes, _context: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(owntracks, "parse", broken)
    carl = Identity("carl", rights=Rights(fixes_per_minute=5))
    assert submit_all(carl, "owntracks/carl/phone") == 5
    assert len(log.rejected) == 15 + 5 * REFUSALS_PER_MINUTE
    admission.close()
