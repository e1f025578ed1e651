"""Serializers without a registry; bytes are compared with those of Kafka's Java classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waylog.config import ConfigError
from waylog.malformed import MALFORMED
from waylog.messages import Rejected
from waylog.serialization.by_name import (
    is_in_header,
    make_recognising_serde,
    make_serde,
    serde_names,
)
from waylog.serialization.plain_serializers import JsonSerde
from waylog.serialization.serializer import RecordPart, SerializationError, Serialized


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("string", "Wien ä", b"Wien \xc3\xa4"),
        ("bytes", b"\0\xff", b"\0\xff"),
        ("short", -2, b"\xff\xfe"),
        ("integer", 258, b"\0\0\1\2"),
        ("long", -1, b"\xff" * 8),
        ("float", 1.5, b"\x3f\xc0\0\0"),
        ("double", 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        ("double", float("inf"), b"\x7f\xf0\0\0\0\0\0\0"),
        ("json", {"a": [1, None]}, b'{"a":[1,null]}'),
    ],
)
def test_a_value_comes_back(name: str, value: Any, data: bytes) -> None:
    serde = make_serde(name, RecordPart.VALUE, {})
    assert serde.serialize("topic", value).data == data
    assert serde.deserialize("topic", data) == value
    assert serde.serialize("topic", None).data is None
    assert serde.deserialize("topic", None) is None


@pytest.mark.parametrize("name", ["float", "double"])
@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_numbers_without_digits_are_texts_in_json_and_come_back(name: str, text: str) -> None:
    serde = make_serde(name, RecordPart.VALUE, {})
    data = serde.serialize("topic", text).data
    assert data == serde.serialize("topic", float(text)).data
    value = [serde.deserialize("topic", data), None]
    assert JsonSerde().serialize("topic", value).data == f'["{text}",null]'.encode()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("string", 5), ("string", "\ud800"), ("bytes", "x"), ("long", "5"), ("long", True)),
        *(("long", 1.5), ("short", 2**15), ("long", 2**63), ("float", 1e300), ("double", "x")),
        ("json", {1, object()}),
    ],
)
def test_a_value_of_another_kind_is_told(name: str, value: Any) -> None:
    with pytest.raises(SerializationError):
        make_serde(name, RecordPart.KEY, {}).serialize("topic", value)


@given(
    st.sampled_from(["string", "short", "integer", "long", "float", "double", "json"]),
    st.binary(max_size=16),
)
def test_any_bytes_are_a_value_or_an_error(name: str, data: bytes) -> None:
    serde = make_serde(name, RecordPart.VALUE, {})
    try:
        serde.deserialize("topic", data)
    except SerializationError as error:
        assert isinstance(error, MALFORMED)


def test_json_may_be_of_a_class() -> None:
    serde = JsonSerde(Rejected)
    rejected = Rejected(reason="r", source="s", time=5, raw=b"\0\1")
    assert serde.deserialize("error", serde.serialize("error", rejected).data) == rejected
    with pytest.raises(SerializationError):
        serde.deserialize("error", b'{"reason":"r"}')
    with pytest.raises(SerializationError):
        serde.deserialize("error", b"[" * 100_000)


def test_an_unknown_format_is_told_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no format xml; there are json, string, .*avro"):
        make_serde("xml", RecordPart.KEY, {})


def test_another_package_brings_a_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reversing.py").write_text(
        "from waylog.serialization.serializer import Serialized\n\n\n"
        "class Reversed:\n"
        "    def __init__(self, part, properties):\n"
        "        self.word = properties['word'] + part.value\n\n"
        "    def serialize(self, topic, value):\n"
        "        return Serialized(value[::-1].encode())\n\n"
        "    def deserialize(self, topic, data, headers=()):\n"
        "        return self.word + data.decode()[::-1]\n"
    )
    installed = tmp_path / "reversing-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: reversing\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[waylog.serializers]\nreversed = reversing:Reversed\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "reversed" in serde_names()
    for make in (make_serde, make_recognising_serde):
        serde = make("reversed", RecordPart.KEY, {"word": "of a "})
        assert serde.serialize("topic", "abc") == Serialized(b"cba")
        assert serde.deserialize("topic", b"\0cba") == "of a keyabc\0"


def test_avro_needs_a_registry() -> None:
    pytest.importorskip("confluent_kafka.schema_registry")
    with pytest.raises(ConfigError, match=r"needs schema\.registry\.url"):
        make_serde("avro", RecordPart.KEY, {})
    url = {"schema.registry.url": "http://127.0.0.1:1"}
    for more in (
        {"auto.register.schemas": "perhaps"},
        {"value.subject.name.strategy": "MyStrategy"},
        {"value.schema.id.serializer": "MySerializer"},
        {"schema": "{}"},
        {"no.such.property": "x"},
    ):
        with pytest.raises(ConfigError):
            make_serde("avro", RecordPart.VALUE, url | more)


def test_a_header_names_the_schema_of_the_part_that_a_property_tells() -> None:
    java = "io.confluent.kafka.serializers.schema.id."
    both = {"schema.id.in.header": "true"}
    key, value = RecordPart.KEY, RecordPart.VALUE
    assert not is_in_header({}, key)
    assert is_in_header(both, key) and is_in_header(both, value)
    of_key = {"key.schema.id.serializer": f"{java}HeaderSchemaIdSerializer"}
    assert is_in_header(of_key, key) and not is_in_header(of_key, value)
    not_value = both | {"value.schema.id.serializer": "PrefixSchemaIdSerializer"}
    assert is_in_header(not_value, key) and not is_in_header(not_value, value)
