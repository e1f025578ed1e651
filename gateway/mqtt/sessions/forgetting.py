"""Erasing a device from the messages that wait for clients."""

from __future__ import annotations

from gateway.mqtt.packets.message import Message
from gateway.mqtt.sessions.session import Session
from waylog.sealing.sealing import owner_of_mqtt_topic


def forget_owner(session: Session, device: str) -> None:
    """Remove the messages of an erased device (`user/device`) from a session.

    Messages in flight keep their packet identifiers, as their QoS handshake goes on, but lose their
    payload.
    """
    session.keep_queued(lambda message: owner_of_mqtt_topic(message.topic) != device)
    for delivery in (session.in_flight or {}).values():
        if owner_of_mqtt_topic(delivery.message.topic) == device:
            delivery.message = Message(delivery.message.topic, b"", delivery.message.qos)
