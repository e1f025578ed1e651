"""A forwarding worker in a process of its own, and forwardings and fixes in the log."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer

from tests.consumers.running import Process
from waylog.forwarding.definition import Forwarding, encode, record_key
from waylog.forwarding.keys import FORWARDING_KEY
from waylog.forwarding.known_forwardings import KnownForwardings
from waylog.forwarding.shown import shown
from waylog.kafka.clients import ensure_topics, producer_config
from waylog.kafka.librdkafka_producer import append_records
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import (
    FORWARDING,
    FORWARDING_PROGRESS,
    FORWARDING_TOPICS,
    LOCATION,
    TOPICS,
)
from waylog.sealing.value_encryption import ensure_master_key, load_master_key
from waylog.sealing.value_keys import KeyRing

LOOPBACK = ("--forwarding-networks", "127.0.0.0/8")


class Platform:
    """The log with forwardings, as gateways write them, and the worker."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self.servers = bootstrap_servers
        path = folder / "master.key"
        ensure_master_key(path)
        ensure_topics(self.servers, (*TOPICS, *FORWARDING_TOPICS))
        self.environment = {FORWARDING_KEY: str(path)}
        self.keys = KeyRing(self.servers, load_master_key(path))
        self._workers: list[Process] = []
        self._producer = Producer(producer_config(self.servers, "test", linger_ms=0))
        self._sent = 0

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self.keys.close()

    def start(self, *options: str, networks: tuple[str, ...] = LOOPBACK) -> Process:
        before = {name: os.environ.get(name) for name in self.environment}
        os.environ.update(self.environment)
        try:
            worker = Process(
                *("forwarding", "run", "--bootstrap-servers", self.servers, *networks, *options)
            )
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        self._workers.append(worker)
        worker.wait_for("forwarding ready")
        return worker

    def put(
        self, user: str, number: int, url: str, kind: str = "traccar", **members: Any
    ) -> Forwarding:
        """Write a forwarding that begins now."""
        now = time.time_ns() // 1_000_000
        members.setdefault("since", now)
        forwarding = Forwarding(name="test", kind=kind, url=url, created=now, **members)
        key = record_key(user, f"{number:016x}")
        value = self.keys.seal_value(FORWARDING, encode(forwarding), key)
        append_records(self.servers, [(FORWARDING, key, value)])
        return forwarding

    def remove(self, user: str, number: int) -> None:
        append_records(self.servers, [(FORWARDING, record_key(user, f"{number:016x}"), None)])

    def fixes(self, key: str, count: int, **members: Any) -> list[str]:
        """Append fixes of a device; return their latitudes, by which requests are known."""
        found = []
        for _ in range(count):
            self._sent += 1
            lat = round(self._sent / 100_000, 5)
            fix = {
                "id": f"fix-{self._sent}",
                "device": key,
                "user": key.partition("/")[0],
                "lat": lat,
                "lon": 9.5,
                "time": time.time_ns() // 1_000_000,
                "received": time.time_ns() // 1_000_000,
            } | members
            self._producer.produce(LOCATION, json.dumps(fix).encode(), key.encode())
            found.append(repr(lat))
        assert self._producer.flush(60) == 0
        return found

    def shown(self, user: str, number: int) -> Mapping[str, Any]:
        """Return a forwarding as its owner is shown it."""
        known = KnownForwardings(self.keys)
        for topic in (FORWARDING, FORWARDING_PROGRESS):
            for message in read_topic(self.servers, topic):
                known.take(topic, message.key(), message.value())
        forwarding_id = f"{number:016x}"
        forwarding = known.of_user(user)[forwarding_id]
        progress = known.progress(user, forwarding_id)
        found: Mapping[str, Any] = msgspec.to_builtins(shown(forwarding_id, forwarding, progress))
        return found
