"""New addresses, and channels that fail."""

from __future__ import annotations

import logging

import pytest

from gateway.notices.push import Pusher


class Channel:
    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.heard: list[tuple[str, bytes]] = []

    def address_changed(self, device: str, value: bytes) -> None:
        if self.broken:
            raise RuntimeError("no")
        self.heard.append((device, value))

    def arrived(self, device: str, transition: bytes) -> None:
        self.address_changed(device, transition)

    def noticed(self, device: str, notice: bytes) -> None:
        self.address_changed(device, notice)


def test_a_channel_that_fails_does_not_keep_others_from_hearing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pusher = Pusher()
    broken, good = Channel(broken=True), Channel()
    pusher.register(broken)
    pusher.register(good)
    with caplog.at_level(logging.ERROR):
        pusher.address_changed("ada/phone", b"{}")
    assert good.heard == [("ada/phone", b"{}")]
    assert "Channel failed" in caplog.text
    with caplog.at_level(logging.ERROR):
        pusher.arrived("ada/phone", b"[]")
        pusher.noticed("ada/phone", b"()")
    assert good.heard.pop() == ("ada/phone", b"()")
    assert good.heard.pop() == ("ada/phone", b"[]")
    pusher.unregister(good)
    pusher.unregister(good)
    pusher.unregister(broken)
    pusher.address_changed("ada/phone", b"{}")
    assert len(good.heard) == 1
