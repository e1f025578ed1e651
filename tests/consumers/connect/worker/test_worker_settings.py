"""What the properties of a worker say."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.configuration.variables import NO_VARIABLES
from consumers.connect.worker.rest_security import RestListener, parse_listener
from consumers.connect.worker.worker_settings import (
    WorkerSettings,
    make_variables,
    unknown_properties,
    worker_settings,
)
from waylog.config import Endpoint

REQUIRED = {
    "key.converter": "StringConverter",
    "value.converter": "StringConverter",
    "offset.storage.file.filename": "/tmp/offsets",
}


def settings(**more: str) -> WorkerSettings:
    named = {name.replace("_", "."): text for name, text in more.items()}
    return worker_settings({**REQUIRED, **named}, NO_VARIABLES)


def test_defaults_are_those_of_kafka_but_for_the_listener() -> None:
    found = settings()
    assert found.bootstrap_servers == "localhost:9092"
    assert found.listeners == (RestListener(Endpoint("127.0.0.1", 8083)),)
    assert (found.timing.flush_interval_s, found.timing.flush_timeout_s) == (60.0, 5.0)
    assert found.stop_timeout_s == 5.0
    assert found.creates_topics
    assert found.tracks_topics


def test_several_brokers_and_listeners_may_be_named() -> None:
    found = settings(bootstrap_servers="a:1, b:2", listeners="http://127.0.0.1:1,HTTP://:2")
    assert found.bootstrap_servers == "a:1,b:2"
    assert [each.endpoint for each in found.listeners] == [
        Endpoint("127.0.0.1", 1),
        Endpoint("", 2),
    ]


@pytest.mark.parametrize("text", ["ftp://a:1", "a:1", "http://a", "http://a:1/x", "http://[::1"])
def test_other_listeners_are_refused(text: str) -> None:
    with pytest.raises(ConfigException, match="configuration listeners"):
        parse_listener(text)


def test_what_nothing_reads_is_told() -> None:
    (sentence,) = unknown_properties(
        {**REQUIRED, "consumer.x": "", "producer.y": "", "offset.flush.intervall.ms": "1"}
    )
    assert sentence == (
        "property offset.flush.intervall.ms is unknown and is ignored; did you mean "
        "offset.flush.interval.ms?"
    )


def test_variables_of_the_worker_are_replaced(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("password=abc\n")
    properties = {
        **REQUIRED,
        "config.providers": "file,env,dir",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.env.class": "EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "GOOD.*",
        "config.providers.dir.class": "DirectoryConfigProvider",
        "config.providers.dir.param.allowed.paths": str(tmp_path / "other"),
        "consumer.sasl.password": f"${{file:{secrets}:password}}",
        "consumer.client.rack": "${env:GOOD_ONE}${env:BAD}",
        "consumer.x": f"${{dir:{tmp_path}:secrets.properties}}",
    }
    variables = make_variables(
        properties,
        lambda name: Path(name).read_text(encoding="utf-8"),
        {"GOOD_ONE": "rack", "BAD": "no"},
    )
    found = worker_settings(properties, variables).properties
    assert found["consumer.sasl.password"] == "abc"
    assert found["consumer.client.rack"] == "rack${env:BAD}"
    assert found["consumer.x"] == properties["consumer.x"]


@pytest.mark.parametrize("class_name", ["", "com.example.VaultConfigProvider"])
def test_other_providers_are_refused(class_name: str) -> None:
    properties = {"config.providers": "a", "config.providers.a.class": class_name}
    with pytest.raises(ConfigException, match=r"config\.providers\.a\.class"):
        make_variables(properties, lambda _name: "", {})
