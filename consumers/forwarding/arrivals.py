"""Records of topic `location` as forwardings take them: of their owner, and of no erased device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from consumers.connect.data.records import SinkRecord
from consumers.forwarding.ledger import Arrived
from waylog.history.erasures import Erasures
from waylog.kafka.topics import LOCATION
from waylog.malformed import MALFORMED


class _Device(msgspec.Struct):
    device: str


_device_of: Final = msgspec.json.Decoder(_Device).decode


def user_of(key: bytes | None) -> str:
    """Return the user in a record's key, which is the device `user/device`."""
    return (key or b"").partition(b"/")[0].decode("utf-8", "replace")


def arrived(messages: Sequence[Any], erasures: Erasures) -> list[Arrived]:
    """Return the messages that are fixes of the device that their keys name."""
    found = []
    for message in messages:
        key, value = message.key(), message.value()
        if key is None or value is None:
            continue
        try:
            name = key.decode()
            # A device's fixes go to its owner alone, whatever somebody wrote under its name.
            if _device_of(value).device != name:
                continue
        except MALFORMED:
            continue
        stored_ms = message.timestamp()[1]
        if erasures.covers(name, stored_ms):
            continue
        user, _, device = name.partition("/")
        record = SinkRecord(
            topic=LOCATION,
            partition=message.partition(),
            key=name,
            value=value,
            timestamp=stored_ms,
            offset=message.offset(),
            original_topic=LOCATION,
            original_partition=message.partition(),
            original_offset=message.offset(),
        )
        found.append(Arrived(user, device, stored_ms, record))
    return found
