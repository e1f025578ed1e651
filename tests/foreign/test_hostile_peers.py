"""The cost of hostile peers for our broker, and for Apache Kafka on the same machine, as a table.

.venv/bin/python -m pytest -m "kafka and long" tests/foreign/test_hostile_peers.py -s
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests import hostile_peers
from tests.apache_kafka import apache_kafka
from tests.contract.broker_process import BrokerProcess
from tests.hostile_peers import Victim

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(1200)]

ROUNDS = 5
#: Time after which a missing answer is given up.
NEVER_MS = 20_000
#: Seconds for which slow connections are observed.
WATCHED_S = 40


class Cost(NamedTuple):
    """The cost of one kind of peer: time until the answer or the end, CPU, growth of memory."""

    milliseconds: float
    cpu_ms: float
    mib: float
    remark: str

    def __str__(self) -> str:
        return (
            f"{self.milliseconds:.0f} ms, {self.remark}, CPU {self.cpu_ms:.0f} ms, "
            f"{self.mib:+.0f} MiB"
        )


def _measured(victim: Victim, attack: Callable[[], tuple[float, str]]) -> Cost:
    assert victim.serves()
    cpu_s, memory = victim.cpu_s(), victim.resident_mib()
    milliseconds, remark = attack()
    cost = Cost(
        milliseconds,
        (victim.cpu_s() - cpu_s) * 1000,
        victim.resident_mib() - memory,
        remark,
    )
    assert milliseconds >= NEVER_MS or victim.serves()
    return cost


def _told(victim: Victim, data: bytes) -> tuple[float, str]:
    began = time.perf_counter()
    answer = victim.tell(data)
    return (time.perf_counter() - began) * 1000, "answered" if answer else "closed"


def _requests(victim: Victim) -> Iterator[tuple[str, Cost]]:
    bomb = hostile_peers.gzip_bomb(900)
    requests = hostile_peers.requests() | {
        "gzip bomb": hostile_peers.produce("plain", bomb),
        "gzip bomb, packed anew": hostile_peers.produce("lz4", bomb),
    }
    for name, data in requests.items():

        def attack(data: bytes = data) -> tuple[float, str]:
            return _told(victim, data)

        rounds = [_measured(victim, attack) for _ in range(ROUNDS)]
        yield (
            name,
            Cost(
                statistics.median(each.milliseconds for each in rounds),
                statistics.median(each.cpu_ms for each in rounds),
                sum(each.mib for each in rounds),
                rounds[-1].remark,
            ),
        )


def _announced(victim: Victim) -> tuple[float, str]:
    connections = [victim.connect() for _ in range(20)]
    for connection in connections:
        connection.sendall(hostile_peers.announced())
    time.sleep(2)
    try:
        milliseconds, remark = _served_ms(victim), "until somebody else is served"
    except TimeoutError:
        milliseconds, remark = NEVER_MS, "and nobody else has been served"
    for connection in connections:
        connection.close()
    return milliseconds, remark


def _idle(victim: Victim) -> tuple[float, str]:
    began = time.perf_counter()
    connections = [victim.connect() for _ in range(3000)]
    # The kernel connects them at once; they are served once the broker has accepted them.
    served_ms = _served_ms(victim)
    milliseconds = (time.perf_counter() - began) * 1000
    for connection in connections:
        connection.close()
    return milliseconds, f"somebody else after {served_ms:.0f} ms"


def _slow(victim: Victim) -> tuple[float, str]:
    """Open a hundred connections that each send a request of 4 KiB at a byte a second."""
    request = hostile_peers.frame(hostile_peers.header(3, 1) + bytes(4096))
    connections = [victim.connect() for _ in range(100)]
    began = time.perf_counter()
    position = 0
    served: list[float] = []
    while connections and time.perf_counter() - began < WATCHED_S:
        for connection in list(connections):
            try:
                connection.sendall(request[position : position + 1])
            except ConnectionError:
                connection.close()
                connections.remove(connection)
        position += 1
        served.append(_served_ms(victim))
        time.sleep(1)
    milliseconds = (time.perf_counter() - began) * 1000
    for connection in connections:
        connection.close()
    remark = f"{len(connections)} of 100 open then, others served in {max(served):.0f} ms at most"
    return milliseconds, remark


def _served_ms(victim: Victim) -> float:
    began = time.perf_counter()
    assert victim.serves()
    return (time.perf_counter() - began) * 1000


def _all(servers: str) -> dict[str, Cost]:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [NewTopic("plain", 1, 1), NewTopic("lz4", 1, 1, config={"compression.type": "lz4"})]
    for future in admin.create_topics(topics).values():
        future.result(10)
    victim = Victim.at(servers)
    # A Java VM that has not warmed up answers its first requests slowly.
    for _ in range(200):
        assert victim.serves()
    costs = dict(_requests(victim))
    for name, attack in (
        ("3,000 idle connections", _idle),
        ("100 slow requests", _slow),
        # The last one, since a Java VM without memory is of no use any more.
        ("20 frames of 100 MB, announced", _announced),
    ):
        costs[name] = _measured(victim, lambda attack=attack: attack(victim))  # type: ignore[misc]
    return costs


@contextmanager
def _many_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[1], 10_000), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_hostile_peers_cost_no_more_than_at_apache_kafka(tmp_path: Path) -> None:
    with _many_files():
        broker = BrokerProcess(tmp_path)
        try:
            ours = _all(broker.start())
        finally:
            assert broker.stop() == 0, "".join(broker.output)
        for name, cost in ours.items():
            print(f"| {name} | {cost} |", flush=True)
        with apache_kafka() as servers:
            theirs = _all(servers)
    for name, cost in theirs.items():
        print(f"| {name} | Apache Kafka: {cost} |", flush=True)
    for name in hostile_peers.requests():
        assert ours[name].cpu_ms < 50, name
    assert sum(cost.mib for cost in ours.values()) < 32
    assert ours["20 frames of 100 MB, announced"].milliseconds < NEVER_MS
