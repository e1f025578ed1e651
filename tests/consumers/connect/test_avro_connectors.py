"""A worker whose connectors write and read Avro by a registry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.consumers.connect.connect_process import (
    ConnectProcess,
    Topic,
    lines_of,
    produce,
    wait_until,
)
from tests.registry_process import registry_on

AVRO = "io.confluent.connect.avro.AvroConverter"


def test_avro_goes_from_file_to_file(
    servers: str, make_worker: Callable[..., ConnectProcess], tmp_path: Path
) -> None:
    text, out = tmp_path / "in.txt", tmp_path / "out.txt"
    text.write_text("foo\nbar\n")
    source, sink = tmp_path / "source.properties", tmp_path / "sink.properties"
    source.write_text(
        f"name=source\nconnector.class=FileStreamSource\nfile={text}\ntopic=avro-lines\n"
    )
    sink.write_text(
        f"name=sink\nconnector.class=FileStreamSink\nfile={out}\ntopics=avro-lines\n"
        "errors.tolerance=all\n"
    )
    with registry_on(servers, tmp_path, "--open", "--replication-factor", "1") as registry:
        worker = make_worker(
            *(servers,),
            value_converter=AVRO,
            key_converter=AVRO,
            **{
                "value.converter.schema.registry.url": registry.url,
                "key.converter.schema.registry.url": registry.url,
            },
        )
        worker.start(source, sink)
        wait_until(lambda: lines_of(out) == ["foo", "bar"], "two lines", worker)
        records = Topic(servers, "avro-lines")
        wait_until(lambda: len(records.read()) == 2, "two records", worker)
        assert all(each.startswith("\0\0\0\0") for each in records.values())
        # A record of anybody is left out, and those behind it arrive.
        produce(servers, "avro-lines", [b"\0\x7f\xff\xff\xffx"])
        with text.open("a") as file:
            file.write("Another line\n")
        wait_until(lambda: lines_of(out)[-1] == "Another line", "three lines", worker)
        records.close()
        assert worker.states("sink") == ["RUNNING", "RUNNING"]
        assert worker.stop() == 0
