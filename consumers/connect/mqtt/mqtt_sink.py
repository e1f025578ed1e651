"""MqttSink: publishes records to an MQTT server, at least once."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import ClassVar

from consumers.connect.configuration.definitions import ConfigDef, ConfigValue
from consumers.connect.mqtt.mqtt_sink_task import MqttSinkTask
from consumers.connect.mqtt.properties import (
    CLIENT_ID,
    SINK_CONFIG,
    Connection,
    checked,
    validated,
)
from consumers.connect.plugins.connector import PartitionSink

logger = logging.getLogger(__name__)


class MqttSinkConnector(PartitionSink):
    """Publishes topics; tasks share the partitions."""

    version = "1.0"
    config_def: ClassVar[ConfigDef] = SINK_CONFIG
    task_class = MqttSinkTask

    def start(self, properties: Mapping[str, str]) -> None:
        """Take the properties; raises ConfigException."""
        self._connection = Connection.of(
            checked(SINK_CONFIG, properties), properties.get("name", "sink")
        )
        self._properties = properties
        logger.info("starting MQTT sink to %s", self._connection.address)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Return the properties of each task, whose clients have names of their own."""
        if max_tasks == 1:
            return [self._properties]
        name = self._connection.client_id
        return [{**self._properties, CLIENT_ID: f"{name}-{number}"} for number in range(max_tasks)]

    def validate(self, properties: Mapping[str, str]) -> Mapping[str, ConfigValue]:
        """Return what there is to say about the properties."""
        return validated(SINK_CONFIG, properties)
