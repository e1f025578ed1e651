"""The console tools, as a person at a terminal uses them, on a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.broker_process import BrokerProcess
from tests.forked_commands import ForkedCommands
from tests.odd_records import append_with_odd_header
from tests.ports import reserved_ports
from tests.registry_process import Registry, registry_on
from tests.waylog.console.terminal import Terminal

pytestmark = pytest.mark.early


@pytest.fixture
def topic(terminal: Terminal) -> str:
    """Return a topic that keeps its records, whatever time they have."""
    name = f"trips-{uuid.uuid4().hex[:8]}"
    terminal.run("topics", "create", name, "--partitions", "2", "--config", "retention.ms=-1")
    return name


def test_a_topic_is_created_described_altered_and_deleted(terminal: Terminal, topic: str) -> None:
    assert {"topic": topic, "partitions": 2, "records": 0} in terminal.rows("topics", "list")
    described = terminal.rows("topics", "describe", topic)
    assert {"setting": "retention.ms", "value": "-1", "default": False} in described
    terminal.run("topics", "alter", topic, "--config", "retention.ms=1000", "--partitions", "3")
    described = terminal.rows("topics", "describe", topic)
    assert {"setting": "retention.ms", "value": "1000", "default": False} in described
    assert sum("leader" in row for row in described) == 3
    terminal.run("topics", "delete", topic)
    assert topic not in [row["topic"] for row in terminal.rows("topics", "list")]


def test_what_was_produced_is_consumed_with_its_key_and_headers(
    terminal: Terminal, topic: str
) -> None:
    lines = 'anna/phone|{"lat":47.14}\nben/phone|not JSON\n'
    words = ("--key-separator", "|", "--header", "source=test", "--partition", "1")
    assert "2 of 2 records" in terminal.run("produce", topic, *words, stdin=lines)
    records = terminal.rows("consume", topic, "--from", "beginning", "--exit")
    assert [(each["key"], each["value"], each["headers"]) for each in records] == [
        ("anna/phone", {"lat": 47.14}, {"source": "test"}),
        ("ben/phone", "not JSON", {"source": "test"}),
    ]
    assert [each["partition"] for each in records] == [1, 1]
    assert terminal.run("consume", topic, "--from", "-1", "--exit", "--key") == (
        "ben/phone\tnot JSON\n"
    )
    assert terminal.run("consume", topic, "--from", "1", "--max", "1") == "not JSON\n"


def test_a_header_whose_name_is_no_text_is_left_out(terminal: Terminal, topic: str) -> None:
    append_with_odd_header(terminal.bootstrap_servers, topic, b"a value", b"anna/phone")
    read = ("consume", topic, "--from", "beginning", "--exit")
    [record] = terminal.rows(*read)
    assert (record["key"], record["value"], record["headers"]) == ("anna/phone", "a value", {})
    assert terminal.run(*read, "--format", r"%s %h\n") == "a value \n"


#: A shell without job control starts what it starts in the background with SIGINT ignored.
INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[0] = "waylog"
from waylog.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("more", [("--from", "beginning"), ("--group",)], ids=["alone", "group"])
def test_ctrl_c_is_the_usual_way_to_end_a_consumer(
    terminal: Terminal, topic: str, more: tuple[str, ...]
) -> None:
    terminal.run("produce", topic, stdin="first\n")
    group = f"group-{topic}"
    more = (*more, group, "--from", "beginning") if more == ("--group",) else more
    words = ("consume", topic, *more, "--bootstrap-servers", terminal.bootstrap_servers)
    reader = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert reader.stdout is not None
    assert reader.stdout.readline() == "first\n"
    reader.send_signal(signal.SIGINT)
    _, said = reader.communicate(timeout=60)
    assert reader.returncode == 0
    assert "Traceback" not in said
    if group in more:
        (found,) = [each for each in terminal.rows("groups", "list") if each["group"] == group]
        assert found["state"].lower() == "empty"  # it has left, and keeps nobody waiting


def test_offsets_are_found_by_time(terminal: Terminal, topic: str) -> None:
    terminal.run("produce", topic, "--partition", "0", stdin="a\nb\n")
    rows = terminal.rows("offsets", topic, "--at", "2001-01-01T00:00:00")
    assert rows[0] == {"partition": 0, "first": 0, "end": 2, "records": 2, "at_time": 0}
    assert terminal.rows("offsets", topic, "--at", "2100-01-01")[0]["at_time"] == 2


def test_a_groups_offsets_are_set_anew_and_its_lag_is_shown(terminal: Terminal, topic: str) -> None:
    terminal.run("produce", topic, "--partition", "0", stdin="a\nb\nc\n")
    group = f"group-{topic}"
    reset = ("groups", "reset", group, "--topic", topic)
    assert terminal.rows(*reset, "--to", "2", "--dry-run")[0]["after"] == 2
    assert "there is no" in terminal.run("groups", "describe", group, status=1)
    nobody = terminal.run("groups", "reset", group, "--all-topics", "--to", "2", status=1)
    assert f"there is no consumer group {group}" in nobody
    said = terminal.run(*reset, "--to", "2")
    assert f"group {group} has no members and no offsets yet: new" in said
    assert "new" not in terminal.run(*reset, "--to", "2")
    assert terminal.rows("groups", "describe", group)[0] == {
        "topic": topic, "partition": 0, "committed": 2, "end": 3, "lag": 1,
    }  # fmt: skip
    terminal.run(*reset, "--to", "-1")
    assert terminal.rows("groups", "describe", group)[0]["committed"] == 1
    assert group in [row["group"] for row in terminal.rows("groups", "list")]


@pytest.mark.parametrize(
    ("words", "explanation"),
    [
        (("topics", "describe", "absent"), "topic absent"),
        (("consume", "absent"), "topic absent"),
        (("topics", "alter", "absent"), "nothing to change"),
        (("offsets", "absent", "--at", "soon"), "not a time"),
    ],
)
def test_a_mistake_is_explained_in_one_line(
    terminal: Terminal, words: tuple[str, ...], explanation: str
) -> None:
    assert explanation in terminal.run(*words, status=1)


def test_the_platforms_topics_are_made_once(terminal: Terminal) -> None:
    assert "location" in terminal.run("topics", "ensure")
    assert "all topics were there" in terminal.run("topics", "ensure")


def test_a_topic_is_created_and_deleted_only_if_need_be(terminal: Terminal, topic: str) -> None:
    assert "exists" in terminal.run("topics", "create", topic, status=1)
    assert "were there" in terminal.run("topics", "create", topic, "--if-not-exists")
    assert "could create" in terminal.run("topics", "create", f"{topic}-2", "--dry-run")
    assert terminal.rows("topics", "create", f"{topic}-3") == [{"topic": f"{topic}-3"}]
    assert terminal.rows("topics", "delete", topic, f"{topic}-3")
    assert "no such topic" in terminal.run("topics", "delete", topic, "--if-exists")


def test_a_setting_goes_back_to_its_default(terminal: Terminal, topic: str) -> None:
    alter = ("topics", "alter", topic, "--delete-config", "retention.ms")
    assert "could alter" in terminal.run(*alter, "--dry-run")
    changed = {"setting": "retention.ms", "value": "-1", "default": False}
    assert changed in terminal.rows("topics", "describe", topic)
    terminal.run(*alter)
    assert changed not in terminal.rows("topics", "describe", topic)


def test_records_are_copied_with_everything_they_have(terminal: Terminal, topic: str) -> None:
    copy = f"{topic}-copy"
    terminal.run("topics", "create", copy, "--config", "retention.ms=-1")
    words = ("--key", "k", "--header", "a=1", "--timestamp", "2020-01-01", "--null", "-")
    terminal.run("produce", topic, *words, stdin='{"lat":1}\ntext\n-\n')
    lines = terminal.run("consume", topic, "--from", "beginning", "--exit", "--json")
    assert "3 of 3" in terminal.run("produce", copy, "--json", stdin=lines)
    records = [
        terminal.rows("consume", name, "--from", "beginning", "--exit") for name in (topic, copy)
    ]
    for each in (*records[0], *records[1]):
        del each["topic"], each["partition"]
    assert records[0] == records[1]
    assert [each["value"] for each in records[1]] == [{"lat": 1}, "text", None]
    assert {each["timestamp"] for each in records[1]} == {1577836800000}


def test_lines_come_from_a_file(terminal: Terminal, topic: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    missing = terminal.run("produce", topic, "--input", str(lines), status=2)
    assert missing == f"waylog produce: --input: {lines}: No such file or directory\n"
    folder = terminal.run("produce", topic, "--input", str(tmp_path), status=2)
    assert "Is a directory" in folder
    lines.write_text("a\nb\n")
    assert "2 of 2" in terminal.run("produce", topic, "--input", str(lines))
    assert "1 of 1" in terminal.run("produce", topic, "--input", "-", stdin="c\n")
    read = ("consume", topic, "--from", "beginning", "--exit")
    assert sorted(terminal.run(*read).split()) == ["a", "b", "c"]


def test_a_format_string_says_how_a_record_is_printed(terminal: Terminal, topic: str) -> None:
    words = ("--key-separator", ":", "--header", "a=1", "--partition", "1")
    terminal.run("produce", topic, *words, "--timestamp", "1700000000000", stdin="k:hello\n")
    read = ("consume", topic, "--from", "beginning", "--exit", "--format")
    assert terminal.run(*read, r"%t[%p]@%o %T %k=%s %h %K/%S%%\x21\n") == (
        f"{topic}[1]@0 1700000000000 k=hello a=1 1/5%!\n"
    )
    assert "%z is unknown" in terminal.run(*read, "%z", status=1)


def test_a_part_of_a_topic_is_printed(terminal: Terminal, topic: str) -> None:
    terminal.run("produce", topic, "--partition", "0", stdin="a\nb\nc\nd\n")
    terminal.run("produce", topic, "--partition", "1", "--timestamp", "2020-01-01", stdin="old\n")
    part = ("consume", topic, "--partition", "0")
    assert terminal.run(*part, "--from", "1", "--until", "3") == "b\nc\n"
    assert terminal.run(*part, "--from", "-1", "--exit") == "d\n"
    assert terminal.run("consume", topic, "--from", "1h", "--exit") == "a\nb\nc\nd\n"
    assert terminal.run("consume", topic, "--from", "2019-01-01", "--until", "1h") == "old\n"


def test_avro_goes_in_and_out(terminal: Terminal, topic: str, tmp_path: Path) -> None:
    schema = tmp_path / "trip.avsc"
    fields = [{"name": "city", "type": "string"}, {"name": "km", "type": "double"}]
    schema.write_text(json.dumps({"type": "record", "name": "Trip", "fields": fields}))
    avro = ("--value-format", "avro", "--value-schema", str(schema), "--schema-id", "7")
    trip = '{"city":"Wien","km":12.5}'
    terminal.run("produce", topic, *avro, stdin=trip + "\n")
    read = ("consume", topic, "--from", "beginning", "--exit")
    assert terminal.run(*read, *avro) == trip + "\n"
    raw = terminal.run(*read, "--value-format", "hex")
    assert raw.startswith("0000000007085769656e")
    wrong = terminal.run("produce", topic, *avro, stdin='{"city":1}\n', status=1)
    assert "the value is no Trip" in wrong
    missing = terminal.run("consume", topic, "--value-format", "avro", status=1)
    assert "--value-schema FILE or --schema-registry URL" in missing


@pytest.fixture(scope="module")
def registry(terminal: Terminal, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    folder = tmp_path_factory.mktemp("registry")
    words = ("--open", "--replication-factor", "1")
    with registry_on(terminal.bootstrap_servers, folder, *words) as running:
        yield running


@pytest.mark.parametrize("in_header", [False, True])
def test_avro_goes_in_and_out_by_a_registry(
    terminal: Terminal, registry: Registry, topic: str, tmp_path: Path, in_header: bool
) -> None:
    schema, config = tmp_path / "trip.avsc", tmp_path / "registry.properties"
    fields = [{"name": "city", "type": "string"}, {"name": "km", "type": "double"}]
    schema.write_text(json.dumps({"type": "record", "name": "Trip", "fields": fields}))
    config.write_text(f"schema.id.in.header={str(in_header).lower()}\n")
    by_registry = ("--schema-registry", registry.url, "--schema-registry-config", str(config))
    formats = ("--key-format", "long", "--value-format", "avro", *by_registry)
    trips = '{"key":7,"value":{"city":"Wien","km":12.5}}\n{"key":8,"value":null}\n'
    words = ("--json", "--partition", "0")
    missing = terminal.run("produce", topic, *words, *formats, stdin=trips, status=1)
    assert "not found" in missing
    terminal.run("produce", topic, *words, *formats, "--value-schema", str(schema), stdin=trips)
    # The newest schema of the subject is taken from now on.
    terminal.run("produce", topic, *words, *formats, stdin='{"key":9,"value":{"city":"G","km":1}}')
    wrong = terminal.run("produce", topic, *words, *formats, stdin='{"value":{"km":1}}', status=1)
    assert "the value is no Trip" in wrong
    read = ("consume", topic, "--from", "beginning", "--exit", *formats)
    rows = terminal.rows(*read)
    assert [(row["key"], row["value"]) for row in rows] == [
        (7, {"city": "Wien", "km": 12.5}), (8, None), (9, {"city": "G", "km": 1.0}),
    ]  # fmt: skip
    assert bool(rows[0]["headers"]) == in_header
    # A reader with an older schema sees what it knows.
    schema.write_text(json.dumps({"type": "record", "name": "Trip", "fields": fields[:1]}))
    older = terminal.run(*read, "--value-schema", str(schema))
    assert older == '{"city":"Wien"}\n\n{"city":"G"}\n'


def test_keys_and_values_of_different_formats_go_in_and_out(
    terminal: Terminal, registry: Registry, topic: str, tmp_path: Path
) -> None:
    pytest.importorskip("google.protobuf", reason="needs pip install 'waylog[protobuf]'")
    place, trip = tmp_path / "place.proto", tmp_path / "trip.json"
    place.write_text('syntax = "proto3"; package test; message A {} message Place {string b = 1;}')
    trip.write_text('{"title": "Trip", "properties": {"km": {"type": "number"}}}')
    config = tmp_path / "registry.properties"
    config.write_text(
        "key.message=test.Place\nkey.schema.id.serializer=HeaderSchemaIdSerializer\n"
        "key.subject.name.strategy=TopicRecordNameStrategy\n"
    )
    formats = (
        *("--key-format", "protobuf", "--value-format", "json-schema"),
        *("--schema-registry", registry.url, "--schema-registry-config", str(config)),
    )
    schemas = ("--key-schema", str(place), "--value-schema", str(trip))
    records = '{"key":{"b":"x"},"value":{"km":1.5}}\n{"key":{"b":"y"},"value":null}\n'
    words = ("--json", "--partition", "0")
    terminal.run("produce", topic, *words, *formats, *schemas, stdin=records)
    terminal.run("produce", topic, *words, *formats, stdin='{"key":{"b":"z"},"value":{"km":2}}')
    read = ("consume", topic, "--from", "beginning", "--exit")
    rows = terminal.rows(*read, *formats)
    assert [(row["key"], row["value"]) for row in rows] == [
        ({"b": "x"}, {"km": 1.5}), ({"b": "y"}, None), ({"b": "z"}, {"km": 2}),
    ]  # fmt: skip
    assert [list(row["headers"]) for row in rows] == [["__key_schema_id"]] * 3
    auto = ("--key-format", "auto", "--value-format", "auto", *formats[4:])
    assert terminal.rows(*read, *auto) == rows
    subjects = urllib.request.urlopen(f"{registry.url}/subjects?subjectPrefix={topic}")
    with subjects:
        assert json.load(subjects) == [f"{topic}-test.Place", f"{topic}-value"]


def test_a_record_of_another_format_does_not_stop_those_behind_it(
    terminal: Terminal, registry: Registry, topic: str
) -> None:
    odd = "7b7d\n\n0000000000\n007fffffff02\n"
    words = ("--partition", "0", "--value-format", "hex")
    terminal.run("produce", topic, *words, stdin=odd)
    terminal.run("produce", topic, "--partition", "0", stdin='{"a":1}\n')
    read = ("consume", topic, "--from", "beginning", "--exit")
    registered = ("--value-format", "avro", "--schema-registry", registry.url)
    told = terminal.run(*read, *registered, status=1)
    assert len([line for line in told.splitlines() if f"{topic}:0 at offset" in line]) == 5
    told = terminal.run(*read, "--value-format", "json", status=1)
    assert '{"a":1}\n' in told
    assert f"{topic}:0 at offset 2: a record is not JSON" in told
    assert "does not answer" in terminal.run(
        *(*read, "--value-format", "avro", "--schema-registry"),
        f"http://127.0.0.1:{reserved_ports(1)[0]}",
        status=1,
    )
    assert "no format xml" in terminal.run(*read, "--value-format", "xml", status=2)


def test_bytes_are_written_in_hexadecimal_and_base64(terminal: Terminal, topic: str) -> None:
    terminal.run("produce", topic, "--value-format", "hex", stdin="00ff10\n")
    read = ("consume", topic, "--from", "beginning", "--exit")
    assert terminal.run(*read, "--value-format", "base64") == "AP8Q\n"
    assert "not hexadecimal" in terminal.run(
        "produce", topic, "--value-format", "hex", stdin="zz\n", status=1
    )


def test_a_group_goes_on_where_it_was(terminal: Terminal, topic: str) -> None:
    terminal.run("produce", topic, "--partition", "0", stdin="a\nb\nc\n")
    group = f"group-{topic}"
    read = ("consume", topic, "--group", group, "--max")
    assert terminal.run(*read, "2") == "a\nb\n"
    assert terminal.run(*read, "1") == "c\n"
    described = terminal.rows("groups", "describe", group)
    assert [(row["committed"], row["lag"]) for row in described if row["end"]] == [(3, 0)]
    listed = next(row for row in terminal.rows("groups", "list") if row["group"] == group)
    assert listed == {"group": group, "type": "classic", "state": "empty", "members": 0}
    assert terminal.rows("groups", "delete", group) == [{"group": group}]
    assert group not in [row["group"] for row in terminal.rows("groups", "list")]


@pytest.mark.long
def test_a_member_of_a_share_group_prints_what_it_is_given(terminal: Terminal, topic: str) -> None:
    group = f"share-{topic}"
    command = ["consume", topic, "--share", group, "--max", "2", "--format", "%s,"]
    with terminal.start(*command) as reader:
        deadline = time.monotonic() + 30
        while {"group": group, "type": "share", "state": "stable", "members": None} not in (
            terminal.rows("groups", "list")
        ):
            assert time.monotonic() < deadline and reader.poll() is None
        # A group begins at the end of a topic, once its member has looked that up.
        printed = ""
        while reader.poll() is None:
            terminal.run("produce", topic, stdin="a\n")
            assert time.monotonic() < deadline
        assert reader.stdout is not None
        printed = reader.stdout.read()
    assert (reader.returncode, printed) == (0, "a,a,")
    refused = terminal.run("consume", topic, "--share", group, "--exit", status=2)
    assert "--share shares records" in refused


def test_offsets_are_kept_in_a_file_and_set_again(
    terminal: Terminal, topic: str, tmp_path: Path
) -> None:
    terminal.run("produce", topic, "--partition", "0", stdin="a\nb\nc\n")
    group = f"group-{topic}"
    terminal.run("groups", "reset", group, "--topic", topic, "--to", "2")
    kept = tmp_path / "offsets.jsonl"
    kept.write_text(terminal.run("groups", "describe", group, "--json"))
    reset = ("groups", "reset", group)
    terminal.run(*reset, "--all-topics", "--shift", "-1")
    assert terminal.rows("groups", "describe", group)[0]["committed"] == 1
    terminal.run(*reset, "--file", str(kept))
    assert terminal.rows("groups", "describe", group)[0]["committed"] == 2
    kept.write_text(f"{topic},0,3\n")
    rows = terminal.rows(*reset, "--file", str(kept), "--dry-run")
    assert rows == [{"topic": topic, "partition": 0, "before": 2, "after": 3}]
    assert "--file names the" in terminal.run(*reset, "--file", str(kept), "--all-topics", status=1)
    kept.write_text("nonsense\n")
    assert "line 1" in terminal.run(*reset, "--file", str(kept), status=1)
    assert "which topics" in terminal.run(*reset, "--to", "end", status=1)


def test_tools_log_in_by_a_file_by_options_and_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: ForkedCommands
) -> None:
    jaas = 'PlainLoginModule required user_anna="pw";'
    broker = BrokerProcess(
        tmp_path,
        **{
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl_enabled_mechanisms": "PLAIN",
            "sasl_jaas_config": jaas,
        },
    )
    terminal = Terminal(broker.start(), commands)
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        'sasl.jaas.config=PlainLoginModule required username="anna" password="pw";\n'
    )
    try:
        terminal.run("topics", "create", "t", "--command-config", str(file))
        options = [
            word
            for pair in (
                "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN",
                "sasl.username=anna", "sasl.password=pw",
            )
            for word in ("-X", pair)
        ]  # fmt: skip
        assert "1 of 1" in terminal.run("produce", "t", *options, stdin="hello\n")
        wrong = terminal.run("topics", "list", *options, "-X", "sasl.password=no", status=1)
        assert "does not let us in" in wrong
        assert "it wants clients to log in" in terminal.run("topics", "list", status=1)
        monkeypatch.setenv("WAYLOG_KAFKA_CONFIG", str(file))
        assert terminal.run("consume", "t", "--from", "beginning", "--exit") == "hello\n"
        assert "location" in terminal.run("topics", "ensure")
    finally:
        broker.stop()


def test_a_running_groups_offsets_are_not_set_and_that_is_said(
    terminal: Terminal, topic: str
) -> None:
    terminal.run("produce", topic, stdin="a\nb\n")
    group = f"running-{topic}"
    reset = ("groups", "reset", group, "--topic", topic, "--to", "end")
    member = terminal.start("consume", topic, "--group", group)
    try:
        assert member.stdout is not None
        assert member.stdout.readline()  # it has joined the group
        assert "is running, with 1 members" in terminal.run(*reset, status=1)
    finally:
        member.terminate()
        member.communicate(timeout=60)


def test_what_does_not_exist_is_named_and_is_a_failure(terminal: Terminal, topic: str) -> None:
    for words, line in (
        (("groups", "describe", "nobody"), "there is no consumer group nobody"),
        (("groups", "delete", "nobody"), "group nobody: "),
        (("produce", "nowhere"), "topic nowhere: Unknown topic"),
        (("produce", topic, "--partition", "7"), "has no partition 7"),
        (("topics", "delete", "nowhere"), "topic nowhere: "),
        (("topics", "alter", topic, "--delete-config", "nothing"), "unknown topic setting nothing"),
        (("cluster", "reassign", topic, "--brokers", "77", "--dry-run"), "there is no broker 77"),
        (("cluster", "reassign", f"{topic}:0=1,1", "--dry-run"), "broker"),
    ):
        assert line in terminal.run(*words, status=1), words


def test_of_several_topics_those_that_were_made_are_named(terminal: Terminal, topic: str) -> None:
    said = terminal.run("topics", "create", f"{topic}-2", topic, status=1)
    assert f"created {topic}-2" in said
    assert f"topic {topic}: " in said


def test_options_that_would_be_ignored_are_refused(terminal: Terminal, topic: str) -> None:
    for words, line in (
        (("consume", topic, "--share", "s", "--from", "beginning"), "--share shares records"),
        (("consume", topic, "--group", "g", "--from", "5"), "--group begins where it has come to"),
        (("consume", topic, "--max", "0"), "at least 1 is expected"),
        (("topics", "create", "none", "--partitions", "0"), "at least 1 is expected"),
        (("topics", "create", "none", "--config", "nonsense"), "NAME=VALUE is expected"),
        (("topics", "list", "-X", "typo=1"), 'No such configuration property: "typo"'),
        (("topics", "list", "-X", "typo"), "NAME=VALUE is expected"),
    ):
        assert line in terminal.run(*words, status=2), words
    assert "none" not in [row["topic"] for row in terminal.rows("topics", "list")]


def test_a_table_for_a_program_has_whole_lines(terminal: Terminal) -> None:
    name = "a" * 200
    terminal.run("topics", "create", name)
    try:
        lines = terminal.run("topics", "list").splitlines()
    finally:
        terminal.run("topics", "delete", name)
    assert lines[0].split() == ["topic", "partitions", "records"]
    assert any(line.split()[0] == name and len(line.split()) == 3 for line in lines)


def test_an_offset_that_is_out_of_range_is_told(terminal: Terminal, topic: str) -> None:
    terminal.run("produce", topic, "--partition", "1", stdin="a\nb\n")
    said = terminal.run("consume", topic, "--from", "99999999", "--exit", status=1)
    assert said == (
        f"waylog consume: --from 99999999 is out of range: {topic}:1 ends at offset 2\n"
    )
    assert terminal.run("consume", topic, "--from", "2", "--exit") == ""
    assert terminal.run("consume", topic, "--from", "1", "--exit") == "b\n"


def test_a_damaged_record_is_told_with_its_place(tmp_path: Path, commands: ForkedCommands) -> None:
    broker = BrokerProcess(tmp_path)
    try:
        terminal = Terminal(broker.start(), commands)
        terminal.run("topics", "create", "trips", "--partitions", "1")
        terminal.run("produce", "trips", "--compression", "none", stdin="first\n")
        terminal.run("produce", "trips", "--compression", "gzip", stdin=f"{'abc' * 900}\n")
        broker.stop()
        (segment,) = (tmp_path / "logs" / "trips-0").glob("*.log")
        data = bytearray(segment.read_bytes())
        data[-30:-10] = b"\xff" * 20
        segment.write_bytes(data)
        broker.start()
        said = terminal.run("consume", "trips", "--from", "beginning", "--exit", status=1)
        assert said.startswith("first\nwaylog consume: trips:0 at offset 1: ")
    finally:
        broker.stop()
