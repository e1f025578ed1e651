"""PostgreSqlSink: writes records as rows of PostgreSQL, each id exactly once.

Delivery is at least once, and a row is identified by its key: what comes again changes nothing.
`docs/connect.md` has the properties.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import ClassVar

from consumers.connect.configuration.definitions import ConfigDef, ConfigValue
from consumers.connect.plugins.connector import PartitionSink
from consumers.connect.postgresql.connection_url import shown_address
from consumers.connect.postgresql.postgresql_task import PostgreSqlSinkTask
from consumers.connect.postgresql.properties import CONFIG, TASK_NUMBER, Settings, validated

logger = logging.getLogger(__name__)


class PostgreSqlSinkConnector(PartitionSink):
    """Writes topics to tables; tasks share the partitions."""

    version = "1.0"
    config_def: ClassVar[ConfigDef] = CONFIG
    task_class = PostgreSqlSinkTask

    def start(self, properties: Mapping[str, str]) -> None:
        """Take the properties; raises ConfigException."""
        self._properties = properties
        settings = Settings.of(properties)
        logger.info("starting PostgreSQL sink to %s", shown_address(settings.parameters))

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Return the properties for each task, and which one it is."""
        return [{**self._properties, TASK_NUMBER: str(each)} for each in range(max_tasks)]

    def validate(self, properties: Mapping[str, str]) -> Mapping[str, ConfigValue]:
        """Return what there is to say about the properties."""
        return validated(properties)
