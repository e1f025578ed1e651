"""TrackFileSink: a GPX or GeoJSON file for each device and day."""

from __future__ import annotations

import logging
import zoneinfo
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType, Importance
from consumers.connect.configuration.exceptions import invalid_value
from consumers.connect.configuration.validators import non_empty, one_of
from consumers.connect.formats.track_file_task import (
    DELETE_ENABLED,
    DIRECTORY,
    FORMAT,
    FORMATS,
    TIMEZONE,
    TrackFileSinkTask,
)
from consumers.connect.plugins.connector import PartitionSink

logger = logging.getLogger(__name__)


def _known_zone(name: str, value: Any) -> None:
    try:
        zoneinfo.ZoneInfo(str(value))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise invalid_value(name, value, "there is no such time zone") from error


CONFIG: Final = ConfigDef(
    [
        ConfigKey(
            name=DIRECTORY,
            type=ConfigType.STRING,
            validator=non_empty,
            importance=Importance.HIGH,
            documentation="The folder below which files are, as USER/DEVICE/YYYY-MM-DD.gpx.",
        ),
        ConfigKey(
            name=FORMAT,
            type=ConfigType.STRING,
            default="gpx",
            validator=one_of(*FORMATS),
            importance=Importance.HIGH,
            documentation="The format of the files: gpx, or geojson.",
        ),
        ConfigKey(
            name=TIMEZONE,
            type=ConfigType.STRING,
            default="UTC",
            validator=_known_zone,
            importance=Importance.MEDIUM,
            documentation="The time zone whose days the files are of, such as Europe/Vaduz.",
        ),
        ConfigKey(
            name=DELETE_ENABLED,
            type=ConfigType.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            documentation="Whether a record without a value removes all files of the device that "
            "is its key.",
        ),
    ]
)


class TrackFileSinkConnector(PartitionSink):
    """Writes positions to files; tasks share the partitions."""

    version = "1.0"
    config_def: ClassVar[ConfigDef] = CONFIG
    task_class = TrackFileSinkTask

    def start(self, properties: Mapping[str, str]) -> None:
        """Take the properties; raises ConfigException."""
        self._properties = properties
        logger.info("starting track file sink to %s", CONFIG.parse(properties)[DIRECTORY])

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Return the properties for each task, with their defaults."""
        parsed = CONFIG.parse(self._properties)
        filled = {name: str(value) for name, value in parsed.items()}
        return [{**self._properties, **filled}] * max_tasks
