"""HttpSink: sends records to a server, at least once and with the same idempotency key.

`docs/connect.md` has the properties, and the servers that there are templates for.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import ClassVar

from consumers.connect.configuration.definitions import ConfigDef, ConfigValue
from consumers.connect.http.http_task import HttpSinkTask
from consumers.connect.http.properties import CONFIG, Settings, validated
from consumers.connect.plugins.connector import PartitionSink

logger = logging.getLogger(__name__)


class HttpSinkConnector(PartitionSink):
    """Sends topics to a server; tasks share the partitions."""

    version = "1.0"
    config_def: ClassVar[ConfigDef] = CONFIG
    task_class = HttpSinkTask

    def start(self, properties: Mapping[str, str]) -> None:
        """Take the properties; raises ConfigException."""
        Settings.of(properties)
        self._properties = properties

    def validate(self, properties: Mapping[str, str]) -> Mapping[str, ConfigValue]:
        """Return what there is to say about the properties."""
        return validated(properties)
