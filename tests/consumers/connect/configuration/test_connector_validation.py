"""Validation answers as Kafka Connect's REST interface does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from consumers.connect.configuration.connector_properties import topics_of
from consumers.connect.configuration.connector_validation import (
    ConfigInfos,
    key_info,
    validate_connector,
)
from consumers.connect.configuration.definitions import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
)
from consumers.connect.configuration.exceptions import with_full_name
from consumers.connect.configuration.plugins import (
    ConnectorPlugin,
    ConnectorType,
    ExactlyOnceSupport,
    PluginTable,
)
from consumers.connect.configuration.topic_creation import NewTopic, TopicCreation
from consumers.connect.configuration.variables import EnvironmentProvider, Variables
from consumers.connect.converters.by_name import converter_plugins
from consumers.connect.file.file_source import CONFIG as FILE_SOURCE_CONFIG
from consumers.connect.http_source.properties import CONFIG as HTTP_SOURCE_CONFIG
from consumers.connect.mqtt.properties import SOURCE_CONFIG as MQTT_SOURCE_CONFIG
from consumers.connect.transforms.by_name import transform_plugins

PLUGINS = PluginTable(converter_plugins() | transform_plugins())
FILE = ConfigKey(
    name="file",
    type=ConfigType.STRING,
    default=None,
    importance=Importance.HIGH,
    documentation="Destination filename. If not specified, the standard output will be used",
)
SINK = ConnectorPlugin(
    "org.apache.kafka.connect.file.FileStreamSinkConnector",
    ConnectorType.SINK,
    ConfigDef([FILE, ConfigKey(name="password", type=ConfigType.PASSWORD, default=None)]),
)
SOURCE = ConnectorPlugin(
    "org.apache.kafka.connect.file.FileStreamSourceConnector",
    ConnectorType.SOURCE,
    ConfigDef([FILE, ConfigKey(name="topic", type=ConfigType.STRING)]),
)
#: From the quick start of Kafka's documentation.
QUICK_START_SINK = {
    "name": "local-file-sink",
    "connector.class": "FileStreamSink",
    "tasks.max": "1",
    "file": "test.sink.txt",
    "topics": "connect-test",
}
#: From its section on transforms.
QUICK_START_SOURCE = {
    "name": "local-file-source",
    "connector.class": "FileStreamSource",
    "tasks.max": "1",
    "file": "test.txt",
    "topic": "connect-test",
    "transforms": "MakeMap, InsertSource",
    "transforms.MakeMap.type": "org.apache.kafka.connect.transforms.HoistField$Value",
    "transforms.MakeMap.field": "line",
    "transforms.InsertSource.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.InsertSource.static.field": "data_source",
    "transforms.InsertSource.static.value": "test-file-source",
}


def errors(answer: ConfigInfos) -> dict[str, list[str]]:
    return {each.value.name: each.value.errors for each in answer.configs if each.value.errors}


def config(answer: ConfigInfos, name: str) -> dict[str, Any]:
    body = json.loads(msgspec.json.encode(answer))
    found: dict[str, Any] = next(each for each in body["configs"] if each["value"]["name"] == name)
    return found


def test_connectors_of_kafkas_documentation_are_valid() -> None:
    assert errors(validate_connector(QUICK_START_SINK, SINK, PLUGINS)) == {}
    answer = validate_connector(QUICK_START_SOURCE, SOURCE, PLUGINS)
    assert errors(answer) == {}
    assert answer.error_count == 0
    assert "Transforms: MakeMap" in answer.groups


def test_the_answer_has_the_members_of_kafka_connects() -> None:
    answer = validate_connector(QUICK_START_SINK, SINK, PLUGINS)
    body = json.loads(msgspec.json.encode(answer))
    assert list(body) == ["name", "error_count", "groups", "configs"]
    assert body["name"] == "org.apache.kafka.connect.file.FileStreamSinkConnector"
    assert body["groups"][:3] == ["Common", "Transforms", "Predicates"]
    tasks_max = config(answer, "tasks.max")
    documentation = tasks_max["definition"].pop("documentation")
    assert documentation
    assert tasks_max == {
        "definition": {
            "name": "tasks.max",
            "type": "INT",
            "required": False,
            "default_value": "1",
            "importance": "HIGH",
            "group": "Common",
            "width": "SHORT",
            "display_name": "Tasks max",
            "dependents": [],
            "order_in_group": 4,
        },
        "value": {
            "name": "tasks.max",
            "value": "1",
            "recommended_values": [],
            "errors": [],
            "visible": True,
        },
    }
    assert config(answer, "topics")["definition"]["default_value"] == ""
    assert config(answer, "file")["value"]["value"] == "test.sink.txt"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        (
            {"topics": ""},
            {
                "topics": ["Must configure one of topics or topics.regex"],
                "topics.regex": ["Must configure one of topics or topics.regex"],
            },
        ),
        (
            {"topics.regex": "a.*"},
            {
                each: ["topics and topics.regex are mutually exclusive options, but both are set."]
                for each in ("topics", "topics.regex")
            },
        ),
        (
            {"errors.deadletterqueue.topic.name": "connect-test"},
            {
                "topics": [
                    "The DLQ topic 'connect-test' may not be included in the list of topics "
                    "('topics=[connect-test]') consumed by the connector"
                ]
            },
        ),
        (
            {"tasks.max": "0"},
            {
                "tasks.max": [
                    "Invalid value 0 for configuration tasks.max: Value must be at least 1"
                ]
            },
        ),
        (
            {"errors.tolerance": "some"},
            {
                "errors.tolerance": [
                    "Invalid value some for configuration errors.tolerance: "
                    "String must be one of: none, all"
                ]
            },
        ),
        (
            {"value.converter": "com.example.None"},
            {
                "value.converter": [
                    "Invalid value com.example.None for configuration value.converter: "
                    "Class com.example.None could not be found."
                ]
            },
        ),
        (
            {
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "maybe",
            },
            {
                "value.converter.schemas.enable": [
                    "Invalid value maybe for configuration value.converter.schemas.enable: "
                    "Expected value to be either true or false"
                ]
            },
        ),
        (
            {"transforms": "a,a", "transforms.a.type": "Filter"},
            {
                "transforms": [
                    "Invalid value [a, a] for configuration transforms: Duplicate alias provided."
                ]
            },
        ),
        (
            {"transforms": "a"},
            {
                "transforms.a.type": [
                    'Missing required configuration "transforms.a.type" which has no default value.'
                ]
            },
        ),
        (
            {"transforms": "a", "transforms.a.type": "HoistField$Value"},
            {
                "transforms.a.field": [
                    'Missing required configuration "transforms.a.field" which has no default '
                    "value."
                ]
            },
        ),
        (
            {"transforms": "a", "transforms.a.type": "Filter", "transforms.a.negate": "true"},
            {
                "transforms.a.type": [
                    "Config 'transforms.a.negate' was provided but there is no config "
                    "'transforms.a.predicate' defining a predicate to be negated."
                ]
            },
        ),
        (
            {"file": None},
            {"file": ["Null value can not be supplied as the configuration value."]},
        ),
        (
            {"name": ""},
            {"name": ["Invalid value  for configuration name: String may not be empty"]},
        ),
    ],
)
def test_what_is_wrong_is_said_in_kafka_connects_words(
    changes: dict[str, str | None], found: dict[str, list[str]]
) -> None:
    answer = validate_connector(QUICK_START_SINK | changes, SINK, PLUGINS)
    assert errors(answer) == found
    assert answer.error_count == sum(map(len, found.values()))
    assert len(answer.errors()) == answer.error_count


def test_a_predicate_must_be_one_of_the_list() -> None:
    properties = QUICK_START_SINK | {
        "transforms": "drop",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.drop.predicate": "isFoo",
        "predicates": "isFoo",
        "predicates.isFoo.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.isFoo.pattern": "foo|bar",
    }
    assert errors(validate_connector(properties, SINK, PLUGINS)) == {}
    wrong = properties | {"predicates": ""}
    assert "transforms.drop.predicate" in errors(validate_connector(wrong, SINK, PLUGINS))


def test_what_a_transform_refuses_as_a_whole_is_an_error_of_what_it_names() -> None:
    properties = QUICK_START_SINK | {
        "transforms": "route,time",
        "transforms.route.type": "RegexRouter",
        "transforms.route.regex": "(.*)",
        "transforms.route.replacement": "x-$1",
        "transforms.time.type": "TimestampConverter$Value",
        "transforms.time.target.type": "string",
        "transforms.time.format": "yyyy-MM-dd",
    }
    assert errors(validate_connector(properties, SINK, PLUGINS)) == {}
    wrong = properties | {"transforms.route.replacement": "x-$2", "transforms.time.format": "i"}
    answer = validate_connector(wrong, SINK, PLUGINS)
    assert list(errors(answer)) == ["transforms.route.replacement", "transforms.time.type"]
    assert answer.error_count == 2
    missing = {name: text for name, text in wrong.items() if name != "transforms.route.replacement"}
    answer = validate_connector(missing, SINK, PLUGINS)
    assert list(errors(answer)) == ["transforms.route.replacement", "transforms.time.type"]


def test_types_are_recommended() -> None:
    answer = validate_connector(QUICK_START_SOURCE, SOURCE, PLUGINS)
    recommended = config(answer, "transforms.MakeMap.type")["value"]["recommended_values"]
    assert "org.apache.kafka.connect.transforms.Cast$Key" in recommended
    assert "org.apache.kafka.connect.transforms.Filter" in recommended


def test_secrets_are_not_in_the_answer() -> None:
    variables = Variables({"env": EnvironmentProvider({"PASSWORD": "s3cret", "TASKS": "s3many"})})
    properties = QUICK_START_SINK | {
        "password": "${env:PASSWORD}",
        "tasks.max": "${env:TASKS}",
        "file": "${env:PASSWORD}",
    }
    answer = validate_connector(properties, SINK, PLUGINS, variables)
    assert "s3" not in msgspec.json.encode(answer).decode()
    assert config(answer, "file")["value"]["value"] == "${env:PASSWORD}"
    assert list(errors(answer)) == ["tasks.max"]
    plain = validate_connector(QUICK_START_SINK | {"password": "s3cret"}, SINK, PLUGINS)
    assert "s3cret" not in msgspec.json.encode(plain).decode()
    assert config(plain, "password")["value"]["value"] == "[hidden]"


def support(answer: ExactlyOnceSupport) -> ConnectorPlugin:
    def ask(_: Mapping[str, str]) -> ExactlyOnceSupport:
        return answer

    return SOURCE._replace(exactly_once_support=ask)


@pytest.mark.parametrize(
    ("connector", "enabled", "count"),
    [
        (SOURCE, False, 1),
        (SOURCE, True, 1),
        (support(ExactlyOnceSupport.UNSUPPORTED), True, 1),
        (support(ExactlyOnceSupport.SUPPORTED), False, 1),
        (support(ExactlyOnceSupport.SUPPORTED), True, 0),
    ],
)
def test_exactly_once_is_refused_where_it_cannot_be(
    connector: ConnectorPlugin, enabled: bool, count: int
) -> None:
    properties = QUICK_START_SOURCE | {"exactly.once.support": "required"}
    answer = validate_connector(properties, connector, PLUGINS, exactly_once_enabled=enabled)
    assert answer.error_count == count
    assert list(errors(answer)) == ["exactly.once.support"] * count


def test_a_required_key_has_no_default_in_an_answer() -> None:
    info = key_info(ConfigKey(name="a", type=ConfigType.STRING))
    assert info.required
    assert info.default_value is None
    secret = key_info(ConfigKey(name="a", type=ConfigType.PASSWORD, default="x"))
    assert secret.default_value == "[hidden]"


def test_topics_come_once() -> None:
    assert topics_of({"topics": "a, b,,a"}) == ["a", "b"]
    assert topics_of({}) == []


#: From KIP-158.
TOPIC_CREATION = {
    "topic.creation.groups": "compacted, highly_parallel",
    "topic.creation.default.replication.factor": "3",
    "topic.creation.default.partitions": "5",
    "topic.creation.highly_parallel.include": "hpc.*,parallel.*",
    "topic.creation.highly_parallel.partitions": "100",
    "topic.creation.compacted.include": "configurations.*",
    "topic.creation.compacted.exclude": "configurations_old",
    "topic.creation.compacted.cleanup.policy": "compact",
}


def test_topics_are_created_as_their_group_says() -> None:
    creation = TopicCreation(TOPIC_CREATION)
    assert creation.of("hpc1") == NewTopic(3, 100, {})
    assert creation.of("configurations1") == NewTopic(3, 5, {"cleanup.policy": "compact"})
    assert creation.of("configurations_old") == NewTopic(3, 5, {})
    assert TopicCreation({}).of("a") is None
    assert errors(validate_connector(QUICK_START_SOURCE | TOPIC_CREATION, SOURCE, PLUGINS)) == {}


def test_the_default_group_must_be_complete() -> None:
    properties = QUICK_START_SOURCE | {"topic.creation.default.partitions": "0"}
    found = errors(validate_connector(properties, SOURCE, PLUGINS))
    assert list(found) == [
        "topic.creation.default.replication.factor",
        "topic.creation.default.partitions",
    ]


def test_a_dead_letter_topic_must_not_match_the_expression_for_topics() -> None:
    properties = QUICK_START_SINK | {
        "topics": "",
        "topics.regex": "dead.*",
        "errors.deadletterqueue.topic.name": "dead-letters",
    }
    found = errors(validate_connector(properties, SINK, PLUGINS))
    assert found == {
        "topics.regex": [
            "The DLQ topic 'dead-letters' may not be matched by the regex for the topics "
            "('topics.regex=dead.*') consumed by the connector"
        ]
    }
    broken = properties | {"topics.regex": "("}
    [message] = errors(validate_connector(broken, SINK, PLUGINS))["topics.regex"]
    assert message.startswith("Invalid value ( for configuration topics.regex: Invalid regex: ")


def test_a_property_that_only_validation_knows_has_no_definition() -> None:
    answer = validate_connector(QUICK_START_SINK | {"unknown": None}, SINK, PLUGINS)
    assert config(answer, "unknown")["definition"] is None
    assert answer.error_count == 1


def test_a_connector_may_validate_for_itself() -> None:
    def validate(properties: Mapping[str, str]) -> Mapping[str, ConfigValue]:
        return {"file": ConfigValue(name="file", errors=[f"no {properties['file']}"])}

    answer = validate_connector(QUICK_START_SINK, SINK._replace(validate=validate), PLUGINS)
    assert errors(answer) == {"file": ["no test.sink.txt"]}


@pytest.mark.parametrize("name", ["a b", "bad name!", ".", "x" * 250])
def test_names_that_no_topic_can_have_are_refused(name: str) -> None:
    dead_letters = {"errors.deadletterqueue.topic.name": f"{name}!"}
    sink = validate_connector(
        {**QUICK_START_SINK, "topics": f"good,{name}", **dead_letters}, SINK, PLUGINS
    )
    assert set(errors(sink)) == {"topics", "errors.deadletterqueue.topic.name"}
    reason = "A topic has a name of 1 to 249 letters, digits, '.', '_' and '-'"
    assert errors(sink)["topics"] == [f"Invalid value {name} for configuration topics: {reason}"]
    source = validate_connector(
        {**QUICK_START_SOURCE, "offsets.storage.topic": name}, SOURCE, PLUGINS
    )
    assert set(errors(source)) == {"offsets.storage.topic"}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (FILE_SOURCE_CONFIG, "topic"),
        (MQTT_SOURCE_CONFIG, "kafka.topic"),
        (HTTP_SOURCE_CONFIG, "kafka.topic"),
    ],
)
def test_sources_refuse_names_that_no_topic_can_have(config: ConfigDef, name: str) -> None:
    found = config.validate({name: "a b"})
    assert found[name].errors
    assert found[name].errors[0].startswith(f"Invalid value a b for configuration {name}")
    assert not config.validate({name: "a-b"})[name].errors


@pytest.mark.parametrize(
    ("plugin", "quick_start", "listing"),
    [
        (SINK, QUICK_START_SINK, "transforms"),
        (SINK, QUICK_START_SINK, "predicates"),
        (SOURCE, QUICK_START_SINK, "topic.creation.groups"),
    ],
)
def test_names_that_a_variable_stands_for_are_not_shown(
    plugin: ConnectorPlugin, quick_start: Mapping[str, str], listing: str
) -> None:
    variables = Variables({"env": EnvironmentProvider({"SECRET": "s3cr3t"})})
    more = {listing: "${env:SECRET}", "topic.creation.default.partitions": "1"}
    answer = validate_connector({**quick_start, **more}, plugin, PLUGINS, variables)
    text = msgspec.json.encode(answer).decode()
    assert "s3cr3t" not in text
    assert ".[hidden]." in text
    # What the configuration says itself is no secret, and tools look for it.
    prefix = listing.removesuffix("groups").removesuffix(".") + ".s3cr3t."
    own = {**quick_start, **more, prefix + "type": "x", prefix + "include": "x"}
    names = [
        each.value.name for each in validate_connector(own, plugin, PLUGINS, variables).configs
    ]
    assert any(name.startswith(prefix) for name in names)


def test_messages_have_the_full_name_and_are_where_they_belong() -> None:
    answer = validate_connector(
        {
            **QUICK_START_SINK,
            "transforms": "r,c",
            "transforms.r.type": "RegexRouter",
            "transforms.r.regex": "a",
            "transforms.r.replacement": "$3",
            "transforms.c.type": "RegexRouter",
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": "x",
        },
        SINK,
        PLUGINS,
    )
    found = errors(answer)
    assert set(found) == {
        "transforms.r.replacement", "transforms.c.regex", "transforms.c.replacement",
        "value.converter.schemas.enable",
    }  # fmt: skip
    for name, (message, *_) in found.items():
        assert name in message


def test_the_name_of_a_property_is_completed_once() -> None:
    for message, expected in (
        ("Invalid value a for configuration b: x", "Invalid value a for configuration t.b: x"),
        ("configuration b: x", "configuration t.b: x"),
        (
            'Missing required configuration "b" which has no default value.',
            'Missing required configuration "t.b" which has no default value.',
        ),
        ("Invalid value b for configuration b.c", "Invalid value b for configuration b.c"),
        ("something else b", "something else b"),
    ):
        assert with_full_name(message, "b", "t.") == expected


def test_more_tasks_than_any_worker_has_are_refused() -> None:
    answer = validate_connector({**QUICK_START_SINK, "tasks.max": "100000000"}, SINK, PLUGINS)
    assert "no more than 10000" in errors(answer)["tasks.max"][0]
