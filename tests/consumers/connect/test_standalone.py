"""Workers with connectors of files on a real broker: Kafka's quick start, kills, dead letters."""

from __future__ import annotations

import json
import resource
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.consumers.connect.connect_process import (
    ConnectProcess,
    Topic,
    create_topic,
    headers_of,
    lines_of,
    produce,
    wait_until,
)
from tests.contract.broker_process import BrokerProcess
from tests.odd_records import append_with_odd_header

pytestmark = pytest.mark.early

MakeWorker = Callable[..., ConnectProcess]


@pytest.fixture(scope="module")
def running_worker(
    servers: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConnectProcess]:
    """A worker for the tests that do not stop it; `worker` gives it without connectors."""
    worker = ConnectProcess(tmp_path_factory.mktemp("worker"), servers)
    worker.start()
    yield worker
    worker.stop()


@pytest.fixture
def worker(running_worker: ConnectProcess) -> Iterator[ConnectProcess]:
    """A worker whose connectors are gone at the end."""
    yield running_worker
    for name in running_worker.ask("GET", "/connectors")[1]:
        assert running_worker.ask("DELETE", f"/connectors/{name}")[0] == 204


# config/connect-file-source.properties and connect-file-sink.properties of Apache Kafka, without
# their comments. The files are in the current directory there.
FILE_SOURCE = """\
name=local-file-source
connector.class=FileStreamSource
tasks.max=1
file=test.txt
topic=connect-test"""
FILE_SINK = """\
name=local-file-sink
connector.class=FileStreamSink
tasks.max=1
file=test.sink.txt
topics=connect-test"""
# From the section on transformations of Kafka Connect's user guide.
_TRANSFORMS = """
transforms=MakeMap, InsertSource
transforms.MakeMap.type=org.apache.kafka.connect.transforms.HoistField$Value
transforms.MakeMap.field=line
transforms.InsertSource.type=org.apache.kafka.connect.transforms.InsertField$Value
transforms.InsertSource.static.field=data_source
transforms.InsertSource.static.value=test-file-source"""


def unique(prefix: str) -> str:
    """Return a name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def in_folder(properties: str, folder: Path, topic: str) -> str:
    """Return properties with files in a folder, and a topic of their own."""
    return (
        properties.replace("file=", f"file={folder}/")
        .replace("topic=connect-test", f"topic={topic}")
        .replace("topics=connect-test", f"topics={topic}")
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_quick_start_of_kafka(servers: str, make_worker: MakeWorker, tmp_path: Path) -> None:
    topic = unique("connect-test")
    source = write(tmp_path / "source.properties", in_folder(FILE_SOURCE, tmp_path, topic))
    sink = write(tmp_path / "sink.properties", in_folder(FILE_SINK, tmp_path, topic))
    # config/connect-standalone.properties
    worker = make_worker(
        servers,
        key_converter="org.apache.kafka.connect.json.JsonConverter",
        value_converter="org.apache.kafka.connect.json.JsonConverter",
        **{"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"},
    )
    text = write(tmp_path / "test.txt", "foo\nbar\n")
    worker.start(source, sink)
    out = tmp_path / "test.sink.txt"
    wait_until(lambda: lines_of(out) == ["foo", "bar"], "two lines", worker)
    records = Topic(servers, topic)
    wait_until(lambda: len(records.read()) == 2, "two records")
    schema = {"type": "string", "optional": False}
    assert [json.loads(each) for each in records.values()] == [
        {"schema": schema, "payload": "foo"}, {"schema": schema, "payload": "bar"}
    ]  # fmt: skip
    with text.open("a") as file:
        file.write("Another line\n")
    wait_until(lambda: lines_of(out) == ["foo", "bar", "Another line"], "three lines", worker)
    records.close()
    for name in ("local-file-source", "local-file-sink"):
        assert worker.states(name) == ["RUNNING", "RUNNING"]
        used = {name: {"topics": [topic]}}
        wait_until(
            lambda name=name, used=used: (  # type: ignore[misc]
                worker.ask("GET", f"/connectors/{name}/topics")[1] == used
            ),
            "its topic",
            worker,
        )
    assert worker.stop() == 0
    assert "Traceback" not in worker.output


def test_the_transforms_of_the_documentation(
    servers: str, worker: ConnectProcess, tmp_path: Path
) -> None:
    topic = unique("connect-test")
    text = in_folder(FILE_SOURCE + _TRANSFORMS, tmp_path, topic)
    config = dict(line.split("=", 1) for line in text.splitlines())
    for kind in ("key", "value"):
        config[f"{kind}.converter"] = "org.apache.kafka.connect.json.JsonConverter"
        config[f"{kind}.converter.schemas.enable"] = "false"
    write(tmp_path / "test.txt", "foo\nbar\nhello world\n")
    worker.create("local-file-source", config)
    records = Topic(servers, topic)
    wait_until(lambda: len(records.read()) == 3, "three records", worker)
    assert records.values() == [
        '{"line":"foo","data_source":"test-file-source"}',
        '{"line":"bar","data_source":"test-file-source"}',
        '{"line":"hello world","data_source":"test-file-source"}',
    ]
    records.close()


@pytest.mark.parametrize("kills", [2, pytest.param(4, marks=pytest.mark.long)])
def test_nothing_is_lost_when_the_worker_is_killed(
    servers: str, make_worker: MakeWorker, tmp_path: Path, kills: int
) -> None:
    topic = unique("killed")
    create_topic(servers, topic, 3)
    source = {
        "name": "in", "connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"),
        "topic": topic, "batch.size": "500",
    }  # fmt: skip
    sink = {
        "name": "out", "connector.class": "FileStreamSink", "file": str(tmp_path / "out.txt"),
        "topics": topic,
        # A member that begins again need not wait until the group has missed the former one.
        "consumer.override.group.instance.id": topic,
    }  # fmt: skip
    files = [write(tmp_path / f"{each['name']}.json", json.dumps(each)) for each in (source, sink)]
    sent: set[str] = set()
    out = tmp_path / "out.txt"
    worker = make_worker(servers)
    with (tmp_path / "in.txt").open("a") as file:
        for turn in range(kills):
            worker.start(*files)
            lines = [f"{turn}-{number}" for number in range(20_000)]
            file.write("".join(f"{each}\n" for each in lines))
            file.flush()
            sent.update(lines)
            size = out.stat().st_size if out.exists() else 0
            wait_until(
                lambda before=size: out.exists() and out.stat().st_size > before,  # type: ignore[misc]
                "lines of this turn",
                worker,
            )
            worker.kill()
    worker.start(*files)
    wait_until(lambda: sent <= set(lines_of(out)), "all lines", worker)
    written = lines_of(out)
    # A line that a kill has cut off is one of its own; its record has come again.
    assert len(set(written) - sent) <= kills * 2
    wait_until(
        lambda: (
            worker.ask("GET", "/connectors/in/offsets")[1]["offsets"]
            == [
                {
                    "partition": {"filename": str(tmp_path / "in.txt")},
                    "offset": {"position": (tmp_path / "in.txt").stat().st_size},
                }
            ]
        ),
        "the offset of the last line",
    )
    assert worker.stop() == 0


@pytest.mark.parametrize("stops", [1, pytest.param(3, marks=pytest.mark.long)])
def test_a_worker_that_stops_in_order_repeats_nothing(
    servers: str, make_worker: MakeWorker, tmp_path: Path, stops: int
) -> None:
    topic, name = unique("stopped"), unique("out")
    create_topic(servers, topic, 2)
    lines = [str(number) for number in range(60_000)]
    text = write(tmp_path / "in.txt", "".join(f"{each}\n" for each in lines))
    out = tmp_path / "out.txt"
    source = {"connector.class": "FileStreamSource", "file": str(text), "topic": topic}
    sink = {"connector.class": "FileStreamSink", "file": str(out), "topics": topic}
    worker = make_worker(servers, **{"offset.flush.interval.ms": "60000"})
    for turn in range(stops):
        worker.start()
        before = len(lines_of(out))
        worker.create("in", source)
        worker.create(name, sink)
        wait_until(
            lambda before=before: len(lines_of(out)) > before or before == len(lines),  # type: ignore[misc]
            f"lines of turn {turn}",
            worker,
        )
        assert worker.stop() == 0
    worker.start()
    worker.create("in", source)
    worker.create(name, sink)
    wait_until(lambda: len(lines_of(out)) >= len(lines), "all lines", worker)
    # Until then half of a line may be in the file.
    assert worker.stop() == 0
    assert sorted(lines_of(out), key=int) == lines


def test_a_poison_record_goes_to_the_dead_letters(
    servers: str, worker: ConnectProcess, tmp_path: Path
) -> None:
    topic, letters = unique("poison"), unique("letters")
    create_topic(servers, topic)
    produce(servers, topic, [b'{"a":1}', b"{poison", b'{"a":2}'], headers={"h": b"v"}, key=b"1")
    append_with_odd_header(servers, topic, b'{"a":3}', b"1")
    out = tmp_path / "out.txt"
    config = {
        "connector.class": "FileStreamSink",
        "topics": topic,
        "file": str(out),
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
        "errors.tolerance": "all",
        "errors.log.enable": "true",
        "errors.deadletterqueue.topic.name": letters,
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    worker.create("out", config)
    good = ["{a=1}", "{a=2}", "{a=3}"]
    wait_until(lambda: sorted(lines_of(out)) == good, "the good records", worker)
    dead = Topic(servers, letters)
    wait_until(lambda: len(dead.read()) == 1, "a dead letter", worker)
    (letter,) = dead.records
    dead.close()
    headers = headers_of(letter)
    assert (letter.key(), letter.value()) == (b"1", b"{poison")
    assert headers["h"] == "v"
    prefix = "__connect.errors."
    assert headers[prefix + "topic"] == topic
    assert headers[prefix + "offset"] == "1"
    assert headers[prefix + "connector.name"] == "out"
    assert headers[prefix + "stage"] == "VALUE_CONVERTER"
    assert headers[prefix + "class.name"] == "org.apache.kafka.connect.json.JsonConverter"
    assert headers[prefix + "exception.class.name"].endswith("DataException")
    assert "Traceback" in headers[prefix + "exception.stacktrace"]
    assert worker.states("out") == ["RUNNING", "RUNNING"]
    wait_until(lambda: "Error encountered in task out-0" in worker.output, "the line", worker)


def test_a_poison_record_ends_a_task_that_tolerates_none(
    servers: str, worker: ConnectProcess, tmp_path: Path
) -> None:
    topic = unique("poison")
    create_topic(servers, topic)
    produce(servers, topic, [b'{"a":1}', b"{poison", b'{"a":2}'])
    config = {
        "connector.class": "FileStreamSink",
        "topics": topic,
        "file": str(tmp_path / "out.txt"),
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    worker.create("out", config)
    worker.await_states("out", "RUNNING", "FAILED")
    assert "Tolerance exceeded in error handler" in worker.trace("out")
    # A restart meets the same record; tolerance gets past it.
    assert worker.ask("POST", "/connectors/out/tasks/0/restart")[0] == 204
    worker.await_states("out", "RUNNING", "FAILED")
    worker.ask("PATCH", "/connectors/out/config", {"errors.tolerance": "all"})
    wait_until(lambda: lines_of(tmp_path / "out.txt")[-1:] == ["{a=2}"], "the good record", worker)
    worker.await_states("out", "RUNNING", "RUNNING")


def test_a_connector_pauses_stops_and_begins_again(
    servers: str, worker: ConnectProcess, tmp_path: Path
) -> None:
    topic, name = unique("paused"), unique("out")
    create_topic(servers, topic, 2)
    out = tmp_path / "out.txt"
    config = {"connector.class": "FileStreamSink", "topics": topic, "file": str(out)}
    worker.create(name, config)
    produce(servers, topic, [b"a"], partition=0)
    wait_until(lambda: lines_of(out) == ["a"], "the first record", worker)

    worker.ask("PUT", f"/connectors/{name}/pause")
    worker.await_states(name, "PAUSED", "PAUSED")
    produce(servers, topic, [b"b"], partition=1)
    worker.ask("PUT", f"/connectors/{name}/resume")
    wait_until(lambda: lines_of(out) == ["a", "b"], "the second record", worker)
    worker.await_states(name, "RUNNING", "RUNNING")

    def offsets() -> dict[int, int]:
        _, found = worker.ask("GET", f"/connectors/{name}/offsets")
        return {
            each["partition"]["kafka_partition"]: each["offset"]["kafka_offset"]
            for each in found["offsets"]
        }

    wait_until(lambda: offsets() == {0: 1, 1: 1}, "both offsets", worker)
    assert worker.ask("PUT", f"/connectors/{name}/stop") == (204, None)
    worker.await_states(name, "STOPPED")
    partition = {"kafka_topic": topic, "kafka_partition": 0}
    body = {"offsets": [{"partition": partition, "offset": {"kafka_offset": 0}}]}
    status, answer = worker.ask("PATCH", f"/connectors/{name}/offsets", body)
    assert (status, answer) == (
        200, {"message": "The offsets for this connector have been altered successfully"}
    ), worker.output  # fmt: skip
    assert offsets() == {0: 0, 1: 1}
    worker.ask("PUT", f"/connectors/{name}/resume")
    wait_until(lambda: lines_of(out) == ["a", "b", "a"], "the first record again", worker)

    worker.ask("PUT", f"/connectors/{name}/stop")
    body = {"offsets": [{"partition": partition, "offset": None}]}
    assert worker.ask("PATCH", f"/connectors/{name}/offsets", body)[0] == 200
    assert offsets() == {1: 1}
    assert worker.ask("DELETE", f"/connectors/{name}/offsets") == (
        200, {"message": "The offsets for this connector have been reset successfully"}
    )  # fmt: skip
    assert offsets() == {}
    worker.ask("PUT", f"/connectors/{name}/resume")
    wait_until(lambda: sorted(lines_of(out)[3:]) == ["a", "b"], "all records again", worker)


def test_a_source_begins_again_where_it_is_told_to(
    servers: str, worker: ConnectProcess, tmp_path: Path
) -> None:
    topic = unique("again")
    create_topic(servers, topic)
    path = write(tmp_path / "in.txt", "a\nb\n")
    config = {"connector.class": "FileStreamSource", "topic": topic, "file": str(path)}
    worker.create("in", config)
    records = Topic(servers, topic)
    wait_until(lambda: records.values() == ["a", "b"], "two records", worker)
    wait_until(lambda: worker.ask("GET", "/connectors/in/offsets")[1]["offsets"], "an offset")
    worker.ask("PUT", "/connectors/in/stop")
    offset = {"partition": {"filename": str(path)}, "offset": {"position": 2}}
    assert worker.ask("PATCH", "/connectors/in/offsets", {"offsets": [offset]})[0] == 200
    worker.ask("PUT", "/connectors/in/resume")
    wait_until(lambda: records.values() == ["a", "b", "b"], "the last record again", worker)
    worker.ask("PUT", "/connectors/in/pause")
    worker.await_states("in", "PAUSED", "PAUSED")
    with path.open("a") as file:
        file.write("c\n")
    worker.ask("PUT", "/connectors/in/resume")
    wait_until(lambda: records.values() == ["a", "b", "b", "c"], "a new record", worker)
    records.close()


def test_the_worker_goes_on_when_its_broker_comes_back(
    make_worker: MakeWorker, tmp_path: Path
) -> None:
    folder = tmp_path / "broker"
    folder.mkdir()
    broker = BrokerProcess(folder, auto_create_topics_enable="true")
    servers = broker.start()
    try:
        topic = unique("away")
        create_topic(servers, topic)
        path, out = write(tmp_path / "in.txt", "a\n"), tmp_path / "out.txt"
        worker = make_worker(servers)
        worker.start()
        worker.create(
            "in", {"connector.class": "FileStreamSource", "topic": topic, "file": str(path)}
        )
        worker.create(
            "out", {"connector.class": "FileStreamSink", "topics": topic, "file": str(out)}
        )
        wait_until(lambda: lines_of(out) == ["a"], "the first line", worker)
        broker.kill()
        with path.open("a") as file:
            file.write("b\nc\n")
        worker.wait_for("no broker can be reached")
        assert worker.states("in") == worker.states("out") == ["RUNNING", "RUNNING"]
        broker.start()
        wait_until(lambda: {"b", "c"} <= set(lines_of(out)), "the other lines", worker)
        assert worker.states("in") == worker.states("out") == ["RUNNING", "RUNNING"]
        broker.kill()
        # It stops although nobody answers.
        assert worker.stop() == 0
    finally:
        broker.kill()


@pytest.mark.long
def test_partitions_move_between_workers_without_a_record_twice(
    servers: str, make_worker: MakeWorker, tmp_path: Path
) -> None:
    topic, name = unique("moved"), unique("out")
    create_topic(servers, topic, 4)
    files = [tmp_path / "first.txt", tmp_path / "second.txt"]
    workers = [make_worker(servers), make_worker(servers)]

    def config(file: Path) -> dict[str, str]:
        return {
            "connector.class": "FileStreamSink",
            "topics": topic,
            "file": str(file),
            "tasks.max": "2",
        }

    def written() -> list[str]:
        return [line for each in files for line in lines_of(each)]

    sent: list[str] = []

    def send(turn: str) -> None:
        lines = [f"{turn}-{number}" for number in range(4000)]
        for partition in range(4):
            own = [line.encode() for line in lines[partition::4]]
            produce(servers, topic, own, partition=partition)
        sent.extend(lines)

    workers[0].start()
    workers[0].create(name, config(files[0]))
    send("alone")
    wait_until(lambda: len(written()) == 4000, "the first records", workers[0])
    workers[1].start()
    workers[1].create(name, config(files[1]))
    send("joining")
    workers[1].wait_for("assigned")
    send("together")
    wait_until(lambda: lines_of(files[1]), "records of the second worker", workers[1])
    assert workers[0].stop() == 0
    send("left")
    wait_until(lambda: len(written()) >= len(sent), "all records", workers[1])
    assert sorted(written()) == sorted(sent)


def test_topics_are_created_as_the_connector_says(
    servers: str, worker: ConnectProcess, tmp_path: Path
) -> None:
    topic = unique("created")
    path = write(tmp_path / "in.txt", "a\n")
    worker.create(
        "in",
        {
            "connector.class": "FileStreamSource",
            "topic": topic,
            "file": str(path),
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "5",
            "topic.creation.default.retention.ms": "1234567",
        },
    )
    records = Topic(servers, topic)
    wait_until(lambda: records.values() == ["a"], "a record", worker)
    assert len(records._partitions()) == 5
    records.close()


def test_a_sink_takes_topics_that_match_an_expression(
    servers: str, worker: ConnectProcess, tmp_path: Path
) -> None:
    prefix = unique("matched")
    create_topic(servers, f"{prefix}.one")
    produce(servers, f"{prefix}.one", [b"1"])
    out = tmp_path / "out.txt"
    worker.create(
        "out",
        {"connector.class": "FileStreamSink", "topics.regex": rf"{prefix}\..*", "file": str(out)},
    )
    wait_until(lambda: lines_of(out) == ["1"], "the first topic", worker)
    create_topic(servers, f"{prefix}.two")
    create_topic(servers, f"x{prefix}.three")
    produce(servers, f"{prefix}.two", [b"2"])
    produce(servers, f"x{prefix}.three", [b"3"])
    wait_until(lambda: lines_of(out) == ["1", "2"], "the second topic", worker)


def test_standard_input_and_output_are_files_too(
    servers: str, make_worker: MakeWorker, tmp_path: Path
) -> None:
    topic = unique("standard")
    create_topic(servers, topic)
    source = {"name": "in", "connector.class": "FileStreamSource", "topic": topic}
    sink = {"name": "out", "connector.class": "FileStreamSink", "topics": topic}
    files = [write(tmp_path / f"{each['name']}.json", json.dumps(each)) for each in (source, sink)]
    out = tmp_path / "stdout.txt"
    worker = make_worker(servers)
    with out.open("wb") as file:
        worker.start(*files, stdin=subprocess.PIPE, stdout=file)
    process = worker._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.write("typed\nhalf")
    process.stdin.flush()
    wait_until(lambda: lines_of(out) == ["typed"], "a line", worker)
    process.stdin.close()
    wait_until(lambda: lines_of(out) == ["typed", "half"], "the last line", worker)
    assert worker.stop() == 0


def test_clients_log_in_by_properties_with_their_prefix(
    make_worker: MakeWorker, tmp_path: Path
) -> None:
    folder = tmp_path / "broker"
    folder.mkdir()
    broker = BrokerProcess(
        folder,
        listeners="SASL_PLAINTEXT://127.0.0.1:0",
        sasl_enabled_mechanisms="PLAIN",
        auto_create_topics_enable="true",
        **{"sasl.jaas.config": 'PlainLoginModule required user_connect="secret-word";'},
    )
    servers = broker.start()
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="connect" password="secret-word";',
    }
    prefixed = {f"{kind}{name}": login[name] for kind in ("", "consumer.") for name in login}
    try:
        text, out = write(tmp_path / "in.txt", "a\n"), tmp_path / "out.txt"
        worker = make_worker(servers, **prefixed)
        worker.start()
        overrides = {f"producer.override.{name}": login[name] for name in login}
        source = {"connector.class": "FileStreamSource", "topic": "t", "file": str(text)}
        worker.create("in", source | overrides)
        worker.create("out", {"connector.class": "FileStreamSink", "topics": "t", "file": str(out)})
        wait_until(lambda: lines_of(out) == ["a"], "the line", worker)
        wait_until(
            lambda: worker.ask("GET", "/connectors/out/offsets")[1]["offsets"], "an offset", worker
        )
        assert worker.stop() == 0
        assert "secret-word" not in worker.output
    finally:
        broker.stop()


def test_a_worker_without_files_for_more_tasks_goes_on_answering(
    servers: str, make_worker: MakeWorker, tmp_path: Path
) -> None:
    worker = make_worker(servers)
    # The soft limit is raised to the hard one, which has room for few tasks.
    worker.start(files=(64, 160))
    assert resource.prlimit(worker.pid, resource.RLIMIT_NOFILE) == (160, 160)
    names = [unique("many") for _ in range(12)]
    for name in names:
        config = {"connector.class": "FileStreamSink", "file": str(tmp_path / name)}
        worker.create(name, {**config, "topics": name})
    wait_until(
        lambda: all(len(worker.states(name)) == 2 for name in names), "all have tasks", worker
    )

    def refused() -> list[str]:
        return [name for name in names if worker.states(name)[1] == "FAILED"]

    wait_until(refused, "some are refused", worker)
    assert "raise the limit of open files" in worker.trace(refused()[0])
    worker.await_states(names[0], "RUNNING", "RUNNING")
    for name in names:
        assert worker.ask("DELETE", f"/connectors/{name}")[0] == 204
    assert "Too many open files" not in worker.output
