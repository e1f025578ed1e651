"""Settings in the form of DescribeConfigs: value, source and documentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from broker_core.configuration.config import BrokerConfig
from broker_core.log.config import LogConfig
from broker_core.server.settings.dynamic_config import DYNAMIC, DynamicConfig
from broker_core.server.settings.group_settings import GroupSettings
from broker_core.server.settings.topic_settings import (
    BY_BROKER_PROPERTY,
    TOPIC_SETTINGS,
    ConfigType,
)

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        DescribeConfigsResponseConfig,
        DescribeConfigsResponseSynonym,
    )

# Sources of values (ConfigSource).
_TOPIC, _OWN, _CLUSTER, _FILE, _DEFAULT = 1, 2, 3, 4, 5
_OF_GROUP = 8

_TOPIC_DEFAULTS: Final = LogConfig().to_properties()

#: Listener settings that clients ask for, with defaults: librdkafka's tests learn from this one
#: when they have to log in again.
_OF_LISTENERS = {"connections.max.reauth.ms": "0"}


class ConfigSources(Protocol):
    """The parts of a broker that the values of its settings come from."""

    config: BrokerConfig
    dynamic_config: DynamicConfig


def _synonym(name: str, value: str | None, source: int) -> DescribeConfigsResponseSynonym:
    return {"name": name, "value": value, "source": source}


def _entry(
    name: str,
    value: str | None,
    synonyms: list[DescribeConfigsResponseSynonym],
    kind: ConfigType,
    *,
    read_only: bool,
    documentation: str | None,
) -> DescribeConfigsResponseConfig:
    return {
        "name": name,
        "value": value,
        "read_only": read_only,
        "config_source": synonyms[0]["source"],
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": kind,
        "documentation": documentation,
    }


def _of_broker(broker: ConfigSources, name: str) -> Iterator[DescribeConfigsResponseSynonym]:
    """Yield the values of a broker property by source, the effective one first."""
    for given, source in (
        (broker.dynamic_config.own, _OWN),
        (broker.dynamic_config.cluster, _CLUSTER),
        (broker.config.properties, _FILE),
    ):
        if name in given:
            yield _synonym(name, given[name], source)


def describe_topic(
    broker: ConfigSources, config: LogConfig, overrides: dict[str, str]
) -> list[DescribeConfigsResponseConfig]:
    """Return all settings of a topic."""
    entries = []
    for name, value in sorted(config.to_properties().items()):
        setting = TOPIC_SETTINGS[name]
        synonyms = []
        if name in overrides:
            synonyms.append(_synonym(name, overrides[name], _TOPIC))
        for broker_property in setting.broker_properties:
            synonyms += _of_broker(broker, broker_property)
        default_name = setting.broker_properties[0] if setting.broker_properties else name
        synonyms.append(_synonym(default_name, _TOPIC_DEFAULTS[name], _DEFAULT))
        entries.append(
            _entry(
                name,
                value,
                synonyms,
                setting.type,
                read_only=False,
                documentation=setting.documentation,
            )
        )
    return entries


def _type_of(value: str) -> ConfigType:
    if value in {"true", "false"}:
        return ConfigType.BOOLEAN
    if value.lstrip("-").isdigit():
        return ConfigType.LONG
    return ConfigType.STRING


def describe_broker(broker: ConfigSources) -> list[DescribeConfigsResponseConfig]:
    """Return all settings of this broker."""
    entries = {}
    defaults = {name: value for name, value, _ in type(broker.config)().describe()} | _OF_LISTENERS
    described = [(name, value) for name, value, _ in broker.dynamic_config.effective().describe()]
    for name, default in _OF_LISTENERS.items():
        described.append((name, broker.config.properties.get(name, default)))
    for name, value in described:
        synonyms = list(_of_broker(broker, name))
        if name in defaults:
            synonyms.append(_synonym(name, defaults[name], _DEFAULT))
        if not synonyms:
            continue
        entries[name] = _described(name, value, synonyms)
    for given in (broker.dynamic_config.own, broker.dynamic_config.cluster):
        for name, value in given.items():
            if name not in entries and name not in BY_BROKER_PROPERTY:
                entries[name] = _described(name, value, list(_of_broker(broker, name)))
    for name, topic_name in BY_BROKER_PROPERTY.items():
        synonyms = list(_of_broker(broker, name))
        if synonyms and name not in entries:
            setting = TOPIC_SETTINGS[topic_name]
            entries[name] = _entry(
                name,
                synonyms[0]["value"],
                synonyms,
                setting.type,
                read_only=name not in DYNAMIC,
                documentation=setting.documentation,
            )
    return [entries[name] for name in sorted(entries)]


def describe_group(settings: GroupSettings, group_id: str) -> list[DescribeConfigsResponseConfig]:
    """Return all settings of a group."""
    given = settings.of(group_id)
    return [
        _entry(
            name,
            value,
            [_synonym(name, value, _OF_GROUP if name in given else _DEFAULT)],
            _type_of(value),
            read_only=False,
            documentation=None,
        )
        for name, value in sorted(settings.effective(group_id).items())
    ]


def describe_all_brokers(dynamic: DynamicConfig) -> list[DescribeConfigsResponseConfig]:
    """Return the dynamic settings of all brokers."""
    return [
        _described(name, value, [_synonym(name, value, _CLUSTER)])
        for name, value in sorted(dynamic.cluster.items())
    ]


def _described(
    name: str, value: str, synonyms: list[DescribeConfigsResponseSynonym]
) -> DescribeConfigsResponseConfig:
    return _entry(
        name,
        value,
        synonyms,
        _type_of(value),
        read_only=name not in DYNAMIC,
        documentation=None,
    )
