"""News of addresses, and channels that fail."""

from __future__ import annotations

import logging

import pytest

from gateway.push import Pusher
from tests.gateway.records import address
from waylog.messages import Address


class Channel:
    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.heard: list[Address] = []

    def address_changed(self, address: Address) -> None:
        if self.broken:
            raise RuntimeError("no")
        self.heard.append(address)


def test_a_channel_that_fails_does_not_keep_others_from_hearing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pusher = Pusher()
    broken, good = Channel(broken=True), Channel()
    pusher.register(broken)
    pusher.register(good)
    with caplog.at_level(logging.ERROR):
        pusher.address_changed(address())
    assert good.heard == [address()]
    assert "Channel failed" in caplog.text
    pusher.unregister(good)
    pusher.unregister(good)
    pusher.unregister(broken)
    pusher.address_changed(address())
    assert len(good.heard) == 1
