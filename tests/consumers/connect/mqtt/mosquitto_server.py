"""A mosquitto of its own, which keeps its sessions while it is stopped."""

from __future__ import annotations

import queue
import shutil
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.consumers.running import await_condition
from tests.ports import reserved_ports

MOSQUITTO: Final = shutil.which(
    "mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
)
USER: Final = "waylog"
PASSWORD: Final = "geheim-4711"
WAIT_S: Final = 60


class MosquittoServer:
    """A server on a port that stays the same over restarts."""

    def __init__(
        self,
        folder: Path,
        *,
        password: bool = False,
        acl: str = "",
        certificates: Sequence[Path] = (),
    ) -> None:
        """For each certificate, with its key in the same file, there is a listener with TLS."""
        if MOSQUITTO is None:
            pytest.skip("needs mosquitto: apt-get install mosquitto")
        self.port, *self.tls_ports = reserved_ports(1 + len(certificates))
        self.uri = f"tcp://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._configuration = folder / "mosquitto.conf"
        lines = [
            f"listener {self.port} 127.0.0.1",
            "user root",
            "persistence true",
            f"persistence_location {folder}/",
            "autosave_on_changes true",
            "autosave_interval 1",
            "max_queued_messages 0",
        ]
        for port, file in zip(self.tls_ports, certificates, strict=True):
            lines += [f"listener {port} 127.0.0.1", f"certfile {file}", f"keyfile {file}"]
        if password:
            program = shutil.which("mosquitto_passwd")
            if program is None:
                pytest.skip("needs mosquitto_passwd: apt-get install mosquitto")
            file = folder / "passwords"
            subprocess.run(
                [program, "-b", "-c", str(file), USER, PASSWORD], check=True, capture_output=True
            )
            file.chmod(0o644)
            lines += ["allow_anonymous false", f"password_file {file}"]
        else:
            lines.append("allow_anonymous true")
        if acl:
            (folder / "acl").write_text(acl)
            lines.append(f"acl_file {folder / 'acl'}")
        self._configuration.write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        """Start, and wait until connections are taken."""
        assert MOSQUITTO is not None
        self._process = subprocess.Popen(
            [MOSQUITTO, "-c", str(self._configuration)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        await_condition(self._answers, WAIT_S, "mosquitto takes connections")

    def stop(self) -> None:
        """Stop; sessions and their messages are in a file."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(WAIT_S)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class MqttPeer:
    """Another client of the server."""

    def __init__(self, server: MosquittoServer, *filters: str, user: str | None = None) -> None:
        self.received: list[tuple[str, bytes, bool]] = []
        self._ready: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        client = self._client = paho.Client(CallbackAPIVersion.VERSION2)
        if user is not None:
            client.username_pw_set(user, PASSWORD)
        client.on_connect = lambda *_: self._connected(filters)
        client.on_subscribe = lambda *_: self._ready.put(None)
        client.on_message = self._arrived
        client.connect("127.0.0.1", server.port)
        client.loop_start()
        self._ready.get(timeout=WAIT_S)

    def _connected(self, filters: tuple[str, ...]) -> None:
        if filters:
            self._client.subscribe([(each, 1) for each in filters])
        else:
            self._ready.put(None)

    def _arrived(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        self.received.append((message.topic, bytes(message.payload), bool(message.retain)))

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> None:
        """Publish, and wait for the acknowledgement."""
        self._client.publish(topic, payload, qos, retain).wait_for_publish(WAIT_S)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
