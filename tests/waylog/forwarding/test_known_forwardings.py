"""Forwardings, progress and pauses as records come and go; values are not sealed here."""

from __future__ import annotations

from typing import cast

from waylog.forwarding.definition import Forwarding, Progress, encode, record_key
from waylog.forwarding.known_forwardings import KnownForwardings
from waylog.forwarding.pauses import new_pause, pause_key
from waylog.kafka.topics import FORWARDING, FORWARDING_PROGRESS
from waylog.sealing.value_keys import KeyRing

ONE, OTHER = "0123456789abcdef", "fedcba9876543210"
VALUE = Forwarding(name="n", kind="webhook", url="https://x", created=1, since=1)


def known() -> KnownForwardings:
    # No key is needed for what is not sealed.
    return KnownForwardings(cast("KeyRing", None))


def test_what_has_ended_is_forgotten() -> None:
    found = known()
    for user in ("bert", "anna"):
        for each in (ONE, OTHER):
            found.take(FORWARDING, record_key(user, each), encode(VALUE))
    found.take(FORWARDING, record_key("anna", ONE), None)
    assert found.users() == ["anna", "bert"]
    assert list(found.of_user("anna")) == [OTHER]
    found.take(FORWARDING, record_key("anna", OTHER), None)
    found.take(FORWARDING, record_key("nobody", ONE), None)
    assert (found.users(), found.of_user("anna")) == (["bert"], {})


def test_progress_is_that_of_each_partition_until_it_ends() -> None:
    found = known()
    for partition in (0, 1):
        value = encode(Progress(offset=partition))
        found.take(FORWARDING_PROGRESS, record_key("anna", ONE, partition), value)
    found.take(FORWARDING_PROGRESS, record_key("anna", OTHER, 0), encode(Progress(offset=7)))
    assert found.progress("anna", ONE) == {0: Progress(offset=0), 1: Progress(offset=1)}
    found.take(FORWARDING_PROGRESS, record_key("anna", ONE, 0), None)
    assert found.progress("anna", ONE) == {1: Progress(offset=1)}
    assert found.progress("anna", OTHER) == {0: Progress(offset=7)}
    assert found.progress("bert", ONE) == {}


def test_a_pause_holds_until_it_ends_and_odd_records_change_nothing() -> None:
    found = known()
    pause = new_pause("too much", "root", 5, user="anna")
    found.take(FORWARDING, pause_key(ONE, "anna"), encode(pause))
    for key in (None, b"", b"\xff", b"anna", b"anna\nxyz"):
        found.take(FORWARDING, key, b"{")
        found.take(FORWARDING_PROGRESS, key, b"{")
    found.take(FORWARDING, record_key("anna", ONE), b"{")
    assert found.pauses().of("anna", ONE, VALUE) == pause
    assert found.pauses().of("bert", ONE, VALUE) is None
    assert found.of_user("anna") == {}
    found.take(FORWARDING, pause_key(ONE, "anna"), None)
    assert found.pauses().of("anna", ONE, VALUE) is None
