"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: settings of topics and of this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker_core import errors
from broker_core.log.config import LogConfig
from broker_core.server.request import Request
from broker_core.server.topics import Topic

if TYPE_CHECKING:
    from broker_core.server.runtime import Broker

_TOPIC, _BROKER = 2, 4

# Where a value comes from (ConfigSource), and what it is (ConfigType).
_SOURCE_TOPIC, _SOURCE_BROKER, _SOURCE_DEFAULT = 1, 4, 5
_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = 1, 2, 3, 5, 6, 7
_SYNONYM_FROM_BROKER: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.ms": "log.roll.ms",
}

# Operations of IncrementalAlterConfigs.
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
_LIST_SETTINGS: Final = frozenset({"cleanup.policy"})
_INT_SETTINGS: Final = frozenset(
    {
        "index.interval.bytes",
        "max.message.bytes",
        "min.insync.replicas",
        "segment.bytes",
        "segment.index.bytes",
    }
)


def _type_of(name: str, value: str) -> int:
    if name in _LIST_SETTINGS:
        return _LIST
    if value in {"true", "false"}:
        return _BOOLEAN
    if value.lstrip("-").isdigit():
        return _INT if name in _INT_SETTINGS else _LONG
    return _DOUBLE if value.replace(".", "", 1).isdigit() else _STRING


def describe_topic_configs(
    broker: Broker, config: LogConfig, overrides: dict[str, str]
) -> list[dict[str, Any]]:
    """All settings of a topic with their sources, as DescribeConfigs shows them."""
    defaults = LogConfig().to_properties()
    of_broker = broker.topics.defaults.to_properties()
    entries: list[dict[str, Any]] = []
    for name, value in sorted(config.to_properties().items()):
        synonym = _SYNONYM_FROM_BROKER.get(name, name)
        synonyms: list[dict[str, Any]] = []
        if name in overrides:
            synonyms.append({"name": name, "value": overrides[name], "source": _SOURCE_TOPIC})
        if name in broker.config.topic_defaults:
            synonyms.append({"name": synonym, "value": of_broker[name], "source": _SOURCE_BROKER})
        synonyms.append({"name": synonym, "value": defaults[name], "source": _SOURCE_DEFAULT})
        entries.append(
            {
                "name": name,
                "value": value,
                "read_only": False,
                "config_source": synonyms[0]["source"],
                "is_sensitive": False,
                "synonyms": synonyms,
                "config_type": _type_of(name, value),
                "documentation": None,
            }
        )
    return entries


def _describe_broker(broker: Broker) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for name, value, is_given in broker.config.describe():
        source = _SOURCE_BROKER if is_given else _SOURCE_DEFAULT
        entries.append(
            {
                "name": name,
                "value": value,
                "read_only": True,
                "config_source": source,
                "is_sensitive": False,
                "synonyms": [{"name": name, "value": value, "source": source}],
                "config_type": _type_of(name, value),
                "documentation": None,
            }
        )
    return entries


def handle_describe(broker: Broker, request: Request) -> None:
    """DescribeConfigs."""
    results: list[dict[str, Any]] = []
    for asked in request.body["resources"]:
        result: dict[str, Any] = {
            "error_message": None,
            "resource_type": asked["resource_type"],
            "resource_name": asked["resource_name"],
        }
        results.append(result)
        try:
            entries = _entries(broker, asked)
        except errors.BrokerError as error:
            result["error_code"] = error.code
            result["error_message"] = str(error)
            continue
        keys = asked["configuration_keys"]
        result["configs"] = [
            entry if request.body["include_synonyms"] else entry | {"synonyms": []}
            for entry in entries
            if keys is None or entry["name"] in keys
        ]
    request.reply({"results": results})


def _entries(broker: Broker, asked: dict[str, Any]) -> list[dict[str, Any]]:
    if asked["resource_type"] == _TOPIC:
        topic = _topic(broker, asked["resource_name"])
        return describe_topic_configs(broker, topic.config, topic.overrides)
    _check_broker(broker, asked)
    return _describe_broker(broker)


def _topic(broker: Broker, name: str) -> Topic:
    topic = broker.topics.get(name)
    if topic is None:
        raise errors.UnknownTopicOrPartition()
    return topic


def _check_broker(broker: Broker, asked: dict[str, Any]) -> None:
    if asked["resource_type"] != _BROKER:
        raise errors.InvalidRequest(
            f"resources of type {asked['resource_type']} have no settings here"
        )
    # The empty name means the defaults of all brokers of a cluster.
    if asked["resource_name"] not in {"", str(broker.node_id)}:
        raise errors.InvalidRequest(f"this is broker {broker.node_id}")


def handle_alter(broker: Broker, request: Request) -> None:
    """AlterConfigs: replaces all of a topic's own settings."""
    _alter(broker, request, incremental=False)


def handle_incremental_alter(broker: Broker, request: Request) -> None:
    """IncrementalAlterConfigs."""
    _alter(broker, request, incremental=True)


def _alter(broker: Broker, request: Request, *, incremental: bool) -> None:
    responses: list[dict[str, Any]] = []
    for asked in request.body["resources"]:
        response: dict[str, Any] = {
            "error_code": errors.NONE,
            "error_message": None,
            "resource_type": asked["resource_type"],
            "resource_name": asked["resource_name"],
        }
        responses.append(response)
        try:
            if asked["resource_type"] != _TOPIC:
                _check_broker(broker, asked)
                raise errors.InvalidRequest(
                    "a broker's settings are in its file; they change with a restart"
                )
            topic = _topic(broker, asked["resource_name"])
            if incremental:
                overrides = _increment(topic, asked["configs"])
            else:
                overrides = {
                    each["name"]: each["value"]
                    for each in asked["configs"]
                    if each["value"] is not None
                }
            broker.topics.log_config(overrides)
            if not request.body["validate_only"]:
                broker.topics.change_config(topic, overrides)
        except errors.BrokerError as error:
            response["error_code"] = error.code
            response["error_message"] = str(error)
    request.reply({"responses": responses})


def _increment(topic: Topic, changes: list[dict[str, Any]]) -> dict[str, str]:
    overrides = dict(topic.overrides)
    effective = topic.config.to_properties()
    for change in changes:
        name, operation, value = change["name"], change["config_operation"], change["value"]
        if operation == _DELETE:
            overrides.pop(name, None)
            continue
        if value is None:
            raise errors.InvalidConfig(f"{name} needs a value")
        if operation == _SET:
            overrides[name] = value
            continue
        if operation not in {_APPEND, _SUBTRACT} or name not in _LIST_SETTINGS:
            raise errors.InvalidConfig(f"operation {operation} is not possible on {name}")
        present = [each for each in effective[name].split(",") if each]
        given = value.split(",")
        if operation == _APPEND:
            present += [each for each in given if each not in present]
        else:
            present = [each for each in present if each not in given]
        overrides[name] = ",".join(present)
    return overrides
