"""Erasing a device from what waits for clients."""

from __future__ import annotations

from collections import deque

from gateway.mqtt.session import Delivery, Message, Session
from waylog.sealing import owner_of_mqtt_topic


def forget_owner(session: Session, device: str) -> None:
    """Take the messages of a device (`user/device`) out of a session.

    What is on its way keeps its packet identifier, whose handshake goes on, without its payload.
    """
    if session.queue is not None:
        kept = deque(each for each in session.queue if not _is_of(each, device))
        session.queued_bytes = sum(len(each.message.payload) for each in kept)
        session.queue = kept or None
    for delivery in (session.in_flight or {}).values():
        if _is_of(delivery, device):
            delivery.message = Message(delivery.message.topic, b"", delivery.message.qos)


def _is_of(delivery: Delivery, device: str) -> bool:
    return owner_of_mqtt_topic(delivery.message.topic) == device
