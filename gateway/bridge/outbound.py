"""From the log to the cluster: new addresses, as the gateway's own listener publishes them."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol

import msgspec

from gateway.fixes import erasure_reader
from gateway.users.cards import card, street_of
from waylog.malformed import MALFORMED
from waylog.messages import decode_address

logger = logging.getLogger(__name__)

Which = Literal["seen", "all", "none"]

#: Devices that are remembered as seen, and cards' streets.
_DEVICES_MAX: Final = 500_000
#: Devices whose newest address may wait for a connection.
_WAITING_MAX: Final = 100_000
#: A retained message without a payload removes the previous one (MQTT 5.0, section 3.3.1.3).
_NOTHING: Final = b""


class Record(Protocol):
    """The part of confluent_kafka.Message that `Outbound` uses."""

    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...


class Outbound:
    """Publishes addresses, as retained messages, to `devices/<user>/<device>/address`.

    A card goes to `owntracks/<user>/<device>/info` when the street has changed.
    `publish(topic, payload, retain=)` returns whether the cluster's client has accepted a message.
    """

    def __init__(self, publish: Callable[..., bool], which: Which) -> None:
        self.published = 0
        self.dropped = 0
        self._publish = publish
        self._which = which
        self._seen: OrderedDict[str, None] = OrderedDict()  # first seen first
        self._streets: dict[str, str] = {}
        self._waiting: OrderedDict[str, bytes] = OrderedDict()

    def seen(self, device: str) -> None:
        """Remember a device that has published in the cluster."""
        if self._which == "seen" and device not in self._seen:
            if len(self._seen) >= _DEVICES_MAX:
                self._seen.popitem(last=False)
            self._seen[device] = None

    def on_records(self, records: Sequence[Record]) -> None:
        """Take records of topic `address`; called by BatchReader."""
        for record in records:
            key, value = record.key(), record.value()
            if key is None or value is None:
                continue
            device = key.decode("utf-8", "replace")
            if self._which == "all" or device in self._seen:
                self._waiting[device] = value
                self._waiting.move_to_end(device)
        self.send_waiting()

    def on_erasures(self, records: Sequence[erasure_reader.Record]) -> None:
        """Take records of topic `erasure`: remove the devices' retained messages in the cluster.

        This includes devices that were erased while no bridge ran. A device that has sent fixes
        since then gets its address there again with its next fix.
        """
        for record in records:
            device = (record.key() or b"").decode("utf-8", "replace")
            if "/" in device:
                self._streets.pop(device, None)
                self._waiting[device] = _NOTHING
                self._waiting.move_to_end(device)
        self.send_waiting()

    def send_waiting(self) -> None:
        """Publish waiting addresses, as many as the cluster's client accepts."""
        while self._waiting:
            device = next(iter(self._waiting))
            try:
                if not self._send(device, self._waiting[device]):
                    break
                self.published += 1
            except Exception:
                # Another program's record, under a name that cannot be part of a topic perhaps.
                logger.exception("the address of %r cannot be published and is left out", device)
                self.dropped += 1
            del self._waiting[device]
        while len(self._waiting) > _WAITING_MAX:
            self._waiting.popitem(last=False)
            self.dropped += 1

    def _send(self, device: str, value: bytes) -> bool:
        """Publish an address and its card; return False if one of them was not accepted."""
        if not self._publish(f"devices/{device}/address", value, retain=True):
            return False
        if value == _NOTHING:
            return self._publish(f"owntracks/{device}/info", _NOTHING, retain=True)
        return self._send_card(device, value)

    def _send_card(self, device: str, value: bytes) -> bool:
        try:
            address = decode_address(value)
        except MALFORMED:
            return True
        street = street_of(address)
        if self._streets.get(device) == street:
            return True
        shown = msgspec.json.encode(card(address, None))
        if not self._publish(f"owntracks/{device}/info", shown, retain=True):
            return False
        if len(self._streets) >= _DEVICES_MAX:
            self._streets.clear()
        self._streets[device] = street
        return True
