"""Estimated sizes that are charged to users, and the users that are charged."""

from __future__ import annotations

from gateway.mqtt.packets.packets import Properties, PropertyId, Will
from gateway.mqtt.sessions.accounts import subscription_bytes, will_bytes


def test_all_that_a_will_holds_is_counted() -> None:
    plain = will_bytes(Will("t", b"", 0, False, None))
    assert will_bytes(None) == 0 < plain
    parts: list[tuple[str, bytes, Properties | None]] = [
        ("t" * 1001, b"", None),
        ("t", b"x" * 1000, None),
        ("t", b"", {PropertyId.CORRELATION_DATA: b"x" * 1000}),
        ("t", b"", {PropertyId.RESPONSE_TOPIC: "x" * 1000}),
        ("t", b"", {PropertyId.USER_PROPERTY: [("a" * 250, "b" * 250)] * 2}),
    ]
    for topic, payload, properties in parts:
        assert will_bytes(Will(topic, payload, 0, False, properties)) == plain + 1000


def test_a_wildcard_costs_what_its_levels_do() -> None:
    assert subscription_bytes("+/+/+/+") > subscription_bytes("a/b/c/d") + 4 * 200
