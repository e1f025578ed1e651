"""MqttSource: messages of an MQTT server become records, at least once."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from consumers.connect.configuration.definitions import ConfigDef, ConfigValue
from consumers.connect.configuration.plugins import ExactlyOnceSupport
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.mqtt.mqtt_source_task import MqttSourceTask
from consumers.connect.mqtt.properties import (
    CLIENT_ID,
    SHARE,
    SOURCE_CONFIG,
    Connection,
    checked,
    validated,
)
from consumers.connect.plugins.connector import SourceConnector

logger = logging.getLogger(__name__)


class MqttSourceConnector(SourceConnector):
    """Subscribes to topics; only those of a shared subscription are divided among tasks."""

    version = "1.0"
    config_def: ClassVar[ConfigDef] = SOURCE_CONFIG
    task_class = MqttSourceTask

    def __init__(self) -> None:
        self._properties: Mapping[str, str] = {}

    def start(self, properties: Mapping[str, str]) -> None:
        """Take the properties; raises ConfigException."""
        self._connection = Connection.of(
            checked(SOURCE_CONFIG, properties), properties.get("name", "source")
        )
        self._properties = properties
        logger.info("starting MQTT source of %s", self._connection.address)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Return the properties of each task, whose clients have names of their own."""
        if not self._properties.get(SHARE) or max_tasks == 1:
            return [self._properties]
        name = self._connection.client_id
        return [{**self._properties, CLIENT_ID: f"{name}-{number}"} for number in range(max_tasks)]

    def validate(self, properties: Mapping[str, str]) -> Mapping[str, ConfigValue]:
        """Return what there is to say about the properties."""
        return validated(SOURCE_CONFIG, properties)

    def exactly_once_support(self, properties: Mapping[str, str]) -> ExactlyOnceSupport:
        """Return that a server repeats what it does not know to be stored."""
        return ExactlyOnceSupport.UNSUPPORTED

    def alter_offsets(
        self,
        properties: Mapping[str, str],
        offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
    ) -> bool:
        """Allow offsets to be removed; they say nothing: the server knows what was acknowledged."""
        if any(offset is not None for _, offset in offsets):
            raise ConnectException("MQTT servers cannot go back to an offset")
        return True
