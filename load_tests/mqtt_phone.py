"""An MQTT 3.1.1 phone on a blocking socket, for a greenlet of its own.

paho-mqtt takes 130 to 840 us per message inside Locust. This module has only the parts of the
protocol that a phone needs.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

_PACKET_BYTES_MAX = 65_536


class ConnectionRefused(Exception):
    """The server rejects this phone: CONNACK with a code other than 0."""


class MqttPhone:
    """A connection that publishes with QoS 1 and passes received messages to callbacks."""

    def __init__(
        self,
        on_acknowledged: Callable[[int], None],
        on_message: Callable[[bytes], None],
    ) -> None:
        self._on_acknowledged = on_acknowledged
        self._on_message = on_message
        self._socket: socket.socket | None = None
        self._received = bytearray()

    def connect(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        user: str,
        password: str | None,
        subscription: str,
    ) -> None:
        """Connect and subscribe; raises OSError or ConnectionRefused."""
        self.close()
        self._received.clear()
        connection = socket.create_connection((host, port), timeout=30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        flags = 0x82 | (0x40 if password is not None else 0)
        body = b"\x00\x04MQTT\x04" + bytes((flags,)) + (600).to_bytes(2, "big")
        body += _text(client_id) + _text(user)
        if password is not None:
            body += _text(password)
        connection.sendall(_packet(0x10, body))
        kind, answer = self._read_packet()
        if kind >> 4 != 2 or len(answer) < 2:
            raise ConnectionError("no CONNACK")
        if answer[1]:
            raise ConnectionRefused(f"CONNACK with code {answer[1]}")
        connection.sendall(_packet(0x82, b"\xff\xff" + _text(subscription) + b"\x00"))
        kind, _ = self._read_packet()
        while kind >> 4 != 9:
            kind, _ = self._read_packet()
        connection.settimeout(None)

    def publish(self, topic: str, payload: bytes, packet_id: int, *, again: bool = False) -> None:
        """Send a message with QoS 1; raises OSError."""
        if self._socket is None:
            raise ConnectionError("not connected")
        body = _text(topic) + packet_id.to_bytes(2, "big") + payload
        self._socket.sendall(_packet(0x3A if again else 0x32, body))

    def serve(self) -> None:
        """Pass received messages to the callbacks until the connection ends, then raise OSError."""
        while True:
            kind, body = self._read_packet()
            if kind >> 4 == 4 and len(body) >= 2:
                self._on_acknowledged(int.from_bytes(body[:2], "big"))
            elif kind >> 4 == 3:
                self._on_message(body[2 + int.from_bytes(body[:2], "big") :])

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _read_packet(self) -> tuple[int, bytes]:
        while True:
            packet = self._next_packet()
            if packet is not None:
                return packet
            data = self._socket.recv(16_384) if self._socket is not None else b""
            if not data:
                raise ConnectionError("the connection was closed")
            self._received += data

    def _next_packet(self) -> tuple[int, bytes] | None:
        length, shift = 0, 0
        for position in range(1, min(5, len(self._received))):
            byte = self._received[position]
            length |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        else:
            return None
        if length > _PACKET_BYTES_MAX:
            raise ConnectionError(f"a packet of {length} bytes is not for a phone")
        end = position + 1 + length
        if len(self._received) < end:
            return None
        packet = self._received[0], bytes(self._received[position + 1 : end])
        del self._received[:end]
        return packet


def _text(value: str) -> bytes:
    encoded = value.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def _packet(first: int, body: bytes) -> bytes:
    length = bytearray()
    size = len(body)
    while True:
        size, byte = divmod(size, 128)
        length.append(byte | (0x80 if size else 0))
        if not size:
            return bytes((first,)) + length + body
