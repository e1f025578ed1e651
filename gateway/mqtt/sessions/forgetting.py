"""Erasing a device from what waits for clients."""

from __future__ import annotations

from gateway.mqtt.sessions.session import Message, Session
from waylog.sealing.sealing import owner_of_mqtt_topic


def forget_owner(session: Session, device: str) -> None:
    """Take the messages of a device (`user/device`) out of a session.

    What is on its way keeps its packet identifier, whose handshake goes on, without its payload.
    """
    session.keep_queued(lambda message: owner_of_mqtt_topic(message.topic) != device)
    for delivery in (session.in_flight or {}).values():
        if owner_of_mqtt_topic(delivery.message.topic) == device:
            delivery.message = Message(delivery.message.topic, b"", delivery.message.qos)
