"""A forwarding worker in a process of its own, and forwardings and fixes in the log."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from confluent_kafka import Producer

from tests.consumers.connect.http.http_server import HttpServer
from tests.consumers.running import Process
from waylog.forwarding.definition import Forwarding, Progress, encode, record_key
from waylog.forwarding.keys import FORWARDING_KEY
from waylog.forwarding.known_forwardings import KnownForwardings
from waylog.forwarding.pauses import Pause, pause_key
from waylog.forwarding.shown import shown
from waylog.kafka.clients import ensure_topics, producer_config
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import (
    FORWARDING,
    FORWARDING_PROGRESS,
    FORWARDING_TOPICS,
    LOCATION,
    TOPICS,
)
from waylog.sealing.sealing import ENVIRONMENT
from waylog.sealing.value_encryption import ensure_master_key, load_master_key
from waylog.sealing.value_keys import KeyRing

LOOPBACK = ("--forwarding-networks", "127.0.0.0/8")


class Platform:
    """The log with forwardings, as gateways write them, and workers.

    Several tests may use it one after the other: `forget` ends what one of them has made.
    """

    def __init__(
        self, bootstrap_servers: str, folder: Path, *, environment: str = FORWARDING_KEY
    ) -> None:
        """`environment` names the variable by which workers are told the file of the key."""
        self.servers = bootstrap_servers
        self.key_file = folder / "master.key"
        ensure_master_key(self.key_file)
        ensure_topics(self.servers, (*TOPICS, *FORWARDING_TOPICS))
        self.environment = {environment: str(self.key_file)}
        self.keys = KeyRing(self.servers, load_master_key(self.key_file))
        self._workers: list[tuple[tuple[str, ...], Process]] = []
        self._producer = Producer(producer_config(self.servers, "test", linger_ms=0))
        self._sent = 0
        self._test = 0
        self._made: set[tuple[str, int]] = set()
        self._paused: set[tuple[int, str | None]] = set()

    def close(self) -> None:
        self.stop_workers()
        self.keys.close()

    def forget(self) -> None:
        """End all forwardings of a test, and the workers that were started for it alone."""
        keys = [record_key(user, self.id_of(number)) for user, number in sorted(self._made)]
        keys += [pause_key(self.id_of(number), user) for number, user in self._paused]
        self._append(*((key, None) for key in keys))
        self._made.clear()
        self._paused.clear()
        self._test += 1
        if len(self._workers) > 1:
            self.stop_workers()

    def worker(self, *options: str, networks: tuple[str, ...] = LOOPBACK) -> Process:
        """Return the only worker, with these options: the one of the test before if it has them."""
        words = (*networks, *options)
        if [each for each, process in self._workers if process.is_running] != [words]:
            self.stop_workers()
            return self.start(*words)
        return self._workers[0][1]

    def start(self, *words: str) -> Process:
        """Start one more worker."""
        process = Process(
            *("forwarding", "run", "--bootstrap-servers", self.servers, *words),
            environment=self.environment,
        )
        self._workers.append((words, process))
        process.wait_for("forwarding ready")
        return process

    def stop_workers(self) -> None:
        for _, process in self._workers:
            process.stop()
        self._workers.clear()

    def put(
        self, user: str, number: int, url: str, kind: str = "traccar", **members: Any
    ) -> Forwarding:
        """Write a forwarding that begins now."""
        now = time.time_ns() // 1_000_000
        usual: dict[str, Any] = {"name": "test", "created": now, "since": now}
        forwarding = Forwarding(kind=kind, url=url, **(usual | members))
        self._made.add((user, number))
        self._append((record_key(user, self.id_of(number)), encode(forwarding)))
        return forwarding

    def remove(self, user: str, number: int) -> None:
        self._append((record_key(user, self.id_of(number)), None))

    def put_pause(self, number: int, pause: Pause | None, user: str | None = None) -> None:
        """Write what an administrator has paused, None if it has ended."""
        key = pause_key(self.id_of(number), user)
        if pause is not None:
            self._paused.add((number, user))
        self._append((key, None if pause is None else encode(pause)))

    def _append(self, *records: tuple[bytes, bytes | None]) -> None:
        for key, value in records:
            sealed = None if value is None else self.keys.seal_value(FORWARDING, value, key)
            self._producer.produce(FORWARDING, sealed, key)
        assert self._producer.flush(60) == 0

    def id_of(self, number: int) -> str:
        """Return the id of a forwarding of this test, or of a pause."""
        return f"{self._test:08x}{number:08x}"

    def put_progress(self, user: str, number: int, partition: int, progress: Progress) -> None:
        """Write how far a forwarding is, as a worker does."""
        key = record_key(user, self.id_of(number), partition)
        sealed = self.keys.seal_value(FORWARDING_PROGRESS, encode(progress), key)
        self._producer.produce(FORWARDING_PROGRESS, sealed, key)
        assert self._producer.flush(60) == 0

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
            value = json.dumps(fix).encode()
            if ENVIRONMENT in self.environment:
                value = self.keys.seal_value(LOCATION, value, key.encode())
            self._producer.produce(LOCATION, value, key.encode())
            found.append(repr(lat))
        assert self._producer.flush(60) == 0
        return found

    def shown(self, user: str, number: int) -> Mapping[str, Any]:
        """Return a forwarding as its owner is shown it."""
        known = KnownForwardings(self.keys)
        for topic in (FORWARDING, FORWARDING_PROGRESS):
            for message in read_topic(self.servers, topic):
                known.take(topic, message.key(), message.value())
        forwarding_id = self.id_of(number)
        forwarding = known.of_user(user)[forwarding_id]
        progress = known.progress(user, forwarding_id)
        pause = known.pauses().of(user, forwarding_id, forwarding)
        found: Mapping[str, Any] = msgspec.to_builtins(
            shown(forwarding_id, forwarding, progress, pause)
        )
        return found


def lats(server: HttpServer) -> list[str]:
    """Return the latitudes that a server was sent by the template `traccar`, as they came."""
    return [parse_qs(urlsplit(each.path).query)["lat"][0] for each in list(server.seen)]


def keys_by_lat(server: HttpServer) -> dict[str, set[str]]:
    """Return the idempotency keys that came with each latitude."""
    found = defaultdict(set)
    for lat, seen in zip(lats(server), server.seen, strict=True):
        found[lat].add(seen.headers["Idempotency-Key"])
    return found
