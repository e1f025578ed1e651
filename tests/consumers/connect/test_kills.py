"""Three workers, kills at random moments under 2,000 fixes/s: nothing that was stored is lost.

On our broker there are fifty kills, on Apache Kafka fewer.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.consumers.connect.connect_process import (
    DistributedProcess,
    create_topic,
    lines_of,
    wait_until,
)
from tests.consumers.connect.either_kafka import APACHE_KAFKA, BOTH, WAYLOG, running_log
from tests.consumers.connect.fix_load import FixLoad
from tests.consumers.connect.http.recording_server import RecordingServer
from tests.consumers.connect.killed_sinks import (
    await_dead_letters,
    await_requests,
    await_rows,
    create,
    kill_at_random,
    requests_config,
    rows_config,
    states,
)
from tests.consumers.connect.mqtt.mosquitto_server import MosquittoServer, MqttPeer
from tests.consumers.connect.postgresql.postgres_server import PostgresServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

_KILLS = {WAYLOG: 50, APACHE_KAFKA: 10}
_SEED = 20251128
_POISON_EVERY = 5000

MakeGroup = Callable[..., list[DistributedProcess]]


@pytest.fixture(scope="module", params=BOTH)
def log(request: pytest.FixtureRequest) -> str:
    """Which Kafka it is."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def servers(log: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of our broker, or of Apache Kafka."""
    with running_log(log, tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RecordingServer]:
    server = RecordingServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def workers(make_group: MakeGroup) -> list[DistributedProcess]:
    name = f"killed-{uuid.uuid4().hex[:8]}"
    workers = make_group(3, name, **{"consumer.session.timeout.ms": "6000"})
    for each in workers:
        each.start()
    return workers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"fixes-{uuid.uuid4().hex[:8]}"
    create_topic(servers, name, 6)
    return name


def test_each_acknowledged_fix_is_a_row_once(
    log: str,
    servers: str,
    workers: list[DistributedProcess],
    postgres: PostgresServer,
    topic: str,
) -> None:
    create(workers, "rows", rows_config(postgres, topic, 3))
    load = FixLoad(servers, topic, poison_every=_POISON_EVERY)

    def kill_server() -> None:
        postgres.kill()
        postgres.start_again()

    with load.running():
        counts = kill_at_random(
            workers,
            {"postgresql": kill_server, "session": postgres.kill_a_session},
            _KILLS[log],
            _SEED,
        )
    await_rows(postgres, load, workers[0])
    await_dead_letters(servers, f"letters-{topic}", load, "no JSON")
    print(f"{load.sent} fixes, {len(load.poison)} dead letters; killed: {counts}")
    assert states(workers[0], "rows") == ["RUNNING"] * 4
    assert not any("Traceback" in each.output for each in workers)


def test_each_acknowledged_fix_is_delivered_and_repeated_with_its_key(
    log: str,
    servers: str,
    workers: list[DistributedProcess],
    server: RecordingServer,
    topic: str,
) -> None:
    create(workers, "requests", requests_config(server, topic, 3))
    load = FixLoad(servers, topic, poison_every=_POISON_EVERY)

    def kill_server() -> None:
        server.kill()
        server.start()

    with load.running():
        counts = kill_at_random(workers, {"http": kill_server}, _KILLS[log], _SEED)
    repeated = await_requests(server, load)
    await_dead_letters(servers, f"letters-{topic}", load, "422")
    print(f"{load.sent} fixes, {repeated} delivered again; killed: {counts}")
    assert states(workers[0], "requests") == ["RUNNING"] * 4
    assert not any("Traceback" in each.output for each in workers)


def test_each_line_of_a_file_is_copied(
    log: str, workers: list[DistributedProcess], topic: str, tmp_path: Path
) -> None:
    text, out = tmp_path / "in.txt", tmp_path / "out.txt"
    text.touch()
    source = {"connector.class": "FileStreamSource", "file": str(text), "topic": topic}
    sink = {"connector.class": "FileStreamSink", "file": str(out), "topics": topic}
    create(workers, "in", source | {"tasks.max": "1"})
    create(workers, "out", sink | {"tasks.max": "1"})
    chance, kills = random.Random(_SEED), _KILLS[log] // 5
    sent: set[str] = set()
    with text.open("a") as file:
        for turn in range(kills):
            lines = [f"line {turn} {number}" for number in range(5000)]
            file.writelines(f"{each}\n" for each in lines)
            file.flush()
            sent.update(lines)
            time.sleep(chance.uniform(0.0, 3.0))
            worker = chance.choice(workers)
            worker.kill()
            worker.start()
    wait_until(lambda: sent <= set(lines_of(out)), f"{len(sent)} lines", workers[0])
    # A line that a kill has cut off is one of its own; its record has come again.
    assert len(set(lines_of(out)) - sent) <= kills


def test_each_message_of_mqtt_is_copied(
    log: str, workers: list[DistributedProcess], topic: str, tmp_path: Path
) -> None:
    mosquitto = MosquittoServer(tmp_path)
    mosquitto.start()
    common = {
        "mqtt.server.uri": mosquitto.uri,
        "tasks.max": "1",
        "value.converter": "ByteArrayConverter",
    }
    source = {
        "connector.class": "MqttSource",
        "mqtt.topics": "in/#",
        "mqtt.client.id": f"{topic}-in",
        "kafka.topic": topic,
    }
    sink = {
        "connector.class": "MqttSink",
        "topics": topic,
        "mqtt.client.id": f"{topic}-out",
        "mqtt.topic.format": "out/${key}",
    }
    create(workers, "in", common | source)
    create(workers, "out", common | sink)
    wait_until(
        lambda: sum(each.output.count("connected to MQTT server") for each in workers) > 1,
        "both sessions",
        workers[0],
    )
    sender, receiver = MqttPeer(mosquitto), MqttPeer(mosquitto, "out/#")
    chance = random.Random(_SEED)
    sent: set[bytes] = set()
    try:
        for turn in range(_KILLS[log] // 5):
            for number in range(200):
                payload = b"%d-%d" % (turn, number)
                sender.publish("in/anna", payload)
                sent.add(payload)
            time.sleep(chance.uniform(0.0, 3.0))
            worker = chance.choice(workers)
            worker.kill()
            worker.start()
        wait_until(
            lambda: sent <= {payload for _, payload, _ in receiver.received},
            f"{len(sent)} messages",
            workers[0],
        )
    finally:
        sender.close()
        receiver.close()
        mosquitto.stop()
