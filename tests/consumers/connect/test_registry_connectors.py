"""A worker whose connectors write and read by a schema registry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.consumers.connect.connect_process import (
    ConnectProcess,
    Topic,
    lines_of,
    produce,
    wait_until,
)
from tests.registry_process import registry_on

AVRO = "io.confluent.connect.avro.AvroConverter"
PROTOBUF = "io.confluent.connect.protobuf.ProtobufConverter"
JSON_SCHEMA = "io.confluent.connect.json.JsonSchemaConverter"
HEADER = "io.confluent.kafka.serializers.schema.id.HeaderSchemaIdSerializer"


@pytest.mark.parametrize(
    ("of_values", "of_keys", "more"),
    [
        (AVRO, AVRO, {}),
        (PROTOBUF, JSON_SCHEMA, {"value.converter.value.schema.id.serializer": HEADER}),
    ],
)
def test_records_go_from_file_to_file(
    servers: str,
    make_worker: Callable[..., ConnectProcess],
    tmp_path: Path,
    of_values: str,
    of_keys: str,
    more: dict[str, str],
) -> None:
    topic = f"lines-of-{of_values.rpartition('.')[2]}"
    text, out = tmp_path / "in.txt", tmp_path / "out.txt"
    text.write_text("foo\nbar\n")
    source, sink = tmp_path / "source.properties", tmp_path / "sink.properties"
    source.write_text(
        f"name=source\nconnector.class=FileStreamSource\nfile={text}\ntopic={topic}\n"
    )
    sink.write_text(
        f"name=sink\nconnector.class=FileStreamSink\nfile={out}\ntopics={topic}\n"
        "errors.tolerance=all\n"
    )
    with registry_on(servers, tmp_path, "--open", "--replication-factor", "1") as registry:
        worker = make_worker(
            *(servers,),
            value_converter=of_values,
            key_converter=of_keys,
            **{
                "value.converter.schema.registry.url": registry.url,
                "key.converter.schema.registry.url": registry.url,
                **more,
            },
        )
        worker.start(source, sink)
        wait_until(lambda: lines_of(out) == ["foo", "bar"], "two lines", worker)
        records = Topic(servers, topic)
        wait_until(lambda: len(records.read()) == 2, "two records", worker)
        assert all(each.startswith("\0\0\0\0") == (not more) for each in records.values())
        # A record of anybody is left out, and those behind it arrive.
        produce(servers, topic, [b"\0\x7f\xff\xff\xffx"])
        with text.open("a") as file:
            file.write("Another line\n")
        wait_until(lambda: lines_of(out)[-1] == "Another line", "three lines", worker)
        records.close()
        assert worker.states("sink") == ["RUNNING", "RUNNING"]
        assert worker.stop() == 0
