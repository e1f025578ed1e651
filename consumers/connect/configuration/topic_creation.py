"""Settings for the topics that source connectors create (KIP-158): `topic.creation.*`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from consumers.connect.configuration.connector_properties import (
    TOPIC_CREATION_GROUP,
    TOPIC_CREATION_GROUPS,
)
from consumers.connect.configuration.definitions import (
    NO_DEFAULT,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    Width,
    parse_type,
)
from consumers.connect.configuration.exceptions import invalid_value
from consumers.connect.configuration.validators import valid_regexes
from consumers.connect.java.regular_expression import compile_java

_PREFIX: Final = "topic.creation."
_DEFAULT: Final = "default"
_INCLUDE: Final = "include"
_EXCLUDE: Final = "exclude"
_REPLICATION_FACTOR: Final = "replication.factor"
_PARTITIONS: Final = "partitions"


def _validate_replication_factor(name: str, value: Any) -> None:
    if value is None or (value != -1 and value < 1):
        reason = (
            "Replication factor must be positive and not larger than the number of brokers in "
            "the Kafka cluster, or -1 to use the broker's default"
        )
        raise invalid_value(name, value, reason)


def _validate_partitions(name: str, value: Any) -> None:
    if value is None or (value != -1 and value < 1):
        reason = "Number of partitions must be positive, or -1 to use the broker's default"
        raise invalid_value(name, value, reason)


def _group(group: str, replication_factor: Any, partitions: Any) -> ConfigDef:
    return ConfigDef(
        [
            ConfigKey(
                name=_INCLUDE,
                type=ConfigType.LIST,
                default=[".*"] if group == _DEFAULT else [],
                validator=valid_regexes,
                importance=Importance.LOW,
                documentation="Expressions for the names of the topics of this group.",
                order=1,
                width=Width.LONG,
                display_name=f"Inclusion Topic Pattern for {group}",
            ),
            ConfigKey(
                name=_EXCLUDE,
                type=ConfigType.LIST,
                default=[],
                validator=valid_regexes,
                importance=Importance.LOW,
                documentation="Expressions for topics that are not of this group although they "
                "are included.",
                order=2,
                width=Width.LONG,
                display_name=f"Exclusion Topic Pattern for {group}",
            ),
            ConfigKey(
                name=_REPLICATION_FACTOR,
                type=ConfigType.SHORT,
                default=replication_factor,
                validator=_validate_replication_factor,
                importance=Importance.LOW,
                documentation="Replicas of each partition; -1 for the broker's default.",
                order=3,
                width=Width.LONG,
                display_name=f"Replication Factor for Topics in {group}",
            ),
            ConfigKey(
                name=_PARTITIONS,
                type=ConfigType.INT,
                default=partitions,
                validator=_validate_partitions,
                importance=Importance.LOW,
                documentation="Partitions of the topic; -1 for the broker's default.",
                order=4,
                width=Width.LONG,
                display_name=f"Partition Count for Topics in {group}",
            ),
        ]
    )


def uses_topic_creation(properties: Mapping[str, str | None]) -> bool:
    """Return whether the connector says how its topics are created."""
    return any(name.startswith(_PREFIX) for name in properties)


def _groups(properties: Mapping[str, Any]) -> list[str]:
    listed = parse_type(
        TOPIC_CREATION_GROUPS, properties.get(TOPIC_CREATION_GROUPS), ConfigType.LIST
    )
    return [each for each in dict.fromkeys(listed or []) if each != _DEFAULT]


def topic_creation_keys(properties: Mapping[str, Any]) -> list[ConfigKey]:
    """Return the properties of all groups that the connector names, and of the default one."""
    if not uses_topic_creation(properties):
        return []
    default = _group(_DEFAULT, NO_DEFAULT, NO_DEFAULT)
    keys = default.embedded(f"{_PREFIX}{_DEFAULT}.", _DEFAULT, 0)
    found = default.validate(
        {name: properties.get(f"{_PREFIX}{_DEFAULT}.{name}") for name in default.keys}
    )
    for group in _groups(properties):
        # What a group does not set is as in the default group.
        definition = _group(
            group, found[_REPLICATION_FACTOR].value or -1, found[_PARTITIONS].value or -1
        )
        title = f"{TOPIC_CREATION_GROUP}: {group}"
        keys.extend(definition.embedded(f"{_PREFIX}{group}.", title, 0))
    return keys


class NewTopic(NamedTuple):
    """How a topic is created."""

    replication_factor: int  # -1: the broker's default
    partitions: int  # -1: the broker's default
    settings: dict[str, str]  # properties of the topic, such as cleanup.policy


class TopicCreation:
    """Tells how a connector's topics are created: as the first group says that they match."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises ConfigException."""
        parsed = ConfigDef(topic_creation_keys(properties)).parse(properties)
        self._groups: Final = []
        for group in [*_groups(properties), _DEFAULT] if parsed else []:
            prefix = f"{_PREFIX}{group}."
            own = (_INCLUDE, _EXCLUDE, _REPLICATION_FACTOR, _PARTITIONS)
            settings = {
                name.removeprefix(prefix): value
                for name, value in properties.items()
                if name.startswith(prefix) and name.removeprefix(prefix) not in own
            }
            topic = NewTopic(
                parsed[prefix + _REPLICATION_FACTOR], parsed[prefix + _PARTITIONS], settings
            )
            # The default group is for all that no other has, whatever it says itself.
            include = [".*"] if group == _DEFAULT else parsed[prefix + _INCLUDE]
            exclude = [] if group == _DEFAULT else parsed[prefix + _EXCLUDE]
            self._groups.append(
                (
                    [compile_java(each) for each in include],
                    [compile_java(each) for each in exclude],
                    topic,
                )
            )

    def of(self, topic: str) -> NewTopic | None:
        """Return how the topic is created, None if the connector does not say."""
        for include, exclude, new in self._groups:
            included = any(each.fullmatch(topic) for each in include)
            if included and not any(each.fullmatch(topic) for each in exclude):
                return new
        return None
