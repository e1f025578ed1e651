"""What MQTT sessions tell at this moment of addresses that are on their way to a device's owner."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import Final

import msgspec

from gateway.mqtt.packets.message import Delivery
from gateway.mqtt.sessions.router import Router
from gateway.mqtt.sessions.session import Session

_SESSIONS_MAX: Final = 100
_DELIVERIES_MAX: Final = 1_000


class ClientDelivery(msgspec.Struct, frozen=True):
    """An MQTT client that has subscribed to the addresses of a device."""

    client_id: str
    connected: bool
    qos: int  # 0: nobody can tell whether what was sent has arrived
    #: Addresses that it has not acknowledged, sent or not. 0 with QoS 1 and more: it has all.
    waiting: int


def address_deliveries(router: Router, device: str) -> list[ClientDelivery]:
    """Return the owner's clients on this process that are sent the addresses of a device.

    Nothing was recorded for it: it is what the sessions hold now. Clients of others are not told.
    """
    owner = device.partition("/")[0]
    topic = f"devices/{device}/address"
    qos: dict[Session, int] = {}
    for subscription in router.subscriptions.match_unshared(topic):
        session = subscription.session
        if session.identity.user == owner and not subscription.elsewhere:
            qos[session] = max(qos.get(session, 0), subscription.qos)
    return [
        ClientDelivery(
            session.client_id,
            session.connection is not None,
            # Addresses are published with QoS 1 (gateway.mqtt.sessions.push).
            min(granted, 1),
            _waiting(session, topic),
        )
        for session, granted in islice(qos.items(), _SESSIONS_MAX)
    ]


def _waiting(session: Session, topic: str) -> int:
    held: Iterable[Delivery] = chain((session.in_flight or {}).values(), session.queue or ())
    return sum(each.message.topic == topic for each in islice(held, _DELIVERIES_MAX))
