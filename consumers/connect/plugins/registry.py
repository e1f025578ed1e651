"""Finds the classes of connectors by the names that configurations give them.

Ours are in a table. Those of other packages are entry points of the group "waylog.connect":

    [project.entry-points."waylog.connect"]
    CountingSink = "counting:CountingSinkConnector"

A class is found by its full name in Java or Python, by that name without package and without
`Connector`, and by the name of its entry point. No module is loaded before it is asked for, except
that a list of all connectors loads all of them.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.plugins.connector import Connector, SinkConnector, SourceConnector

logger = logging.getLogger(__name__)

ENTRY_POINTS: Final = "waylog.connect"
_SUFFIX: Final = "Connector"
#: Modules and classes of ours, by their names in Kafka; as text, since they stand above this.
BUILT_IN: Final = {
    "consumers.connect.formats.track_file_sink.TrackFileSinkConnector": (
        "consumers.connect.formats.track_file_sink:TrackFileSinkConnector"
    ),
    "consumers.connect.http.http_sink.HttpSinkConnector": (
        "consumers.connect.http.http_sink:HttpSinkConnector"
    ),
    "consumers.connect.http_source.http_source.HttpSourceConnector": (
        "consumers.connect.http_source.http_source:HttpSourceConnector"
    ),
    "org.apache.kafka.connect.file.FileStreamSourceConnector": (
        "consumers.connect.file.file_source:FileStreamSourceConnector"
    ),
    "org.apache.kafka.connect.file.FileStreamSinkConnector": (
        "consumers.connect.file.file_sink:FileStreamSinkConnector"
    ),
    "consumers.connect.mqtt.mqtt_source.MqttSourceConnector": (
        "consumers.connect.mqtt.mqtt_source:MqttSourceConnector"
    ),
    "consumers.connect.mqtt.mqtt_sink.MqttSinkConnector": (
        "consumers.connect.mqtt.mqtt_sink:MqttSinkConnector"
    ),
    "consumers.connect.postgresql.postgresql_sink.PostgreSqlSinkConnector": (
        "consumers.connect.postgresql.postgresql_sink:PostgreSqlSinkConnector"
    ),
}


class UnknownConnector(ConnectException):
    """No connector has the name; the message lists those that there are."""


class ConnectorClass(NamedTuple):
    """A connector's class, and the full name by which answers call it."""

    name: str
    connector: type[Connector]

    @property
    def is_source(self) -> bool:
        """Tell whether it reads from another system."""
        return issubclass(self.connector, SourceConnector)


class _Entry(NamedTuple):
    name: str  # the full name, if it is known before the class is loaded
    load: Callable[[], object]
    aliases: frozenset[str]


def _load(reference: str) -> object:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def _aliases(*names: str) -> frozenset[str]:
    simple = [name.rpartition(".")[2] for name in names]
    return frozenset((*names, *simple, *(each.removesuffix(_SUFFIX) for each in simple)))


def _built_in(table: Mapping[str, str]) -> list[_Entry]:
    return [
        _Entry(
            name,
            lambda reference=reference: _load(reference),  # type: ignore[misc]
            _aliases(name, reference.replace(":", ".")),
        )
        for name, reference in table.items()
    ]


def _installed(points: Iterable[importlib.metadata.EntryPoint]) -> list[_Entry]:
    return [
        _Entry(
            f"{point.module}.{point.attr}",
            point.load,
            _aliases(f"{point.module}.{point.attr}") | {point.name},
        )
        for point in points
    ]


class ConnectorRegistry:
    """The connectors that a worker has. It may be used by several threads."""

    def __init__(self) -> None:
        self._entries: Final = [
            *_built_in(BUILT_IN),
            *_installed(importlib.metadata.entry_points(group=ENTRY_POINTS)),
        ]
        self._loaded: Final[dict[str, ConnectorClass | None]] = {}

    def find(self, name: str) -> ConnectorClass:
        """Return the class that has the name; raises UnknownConnector."""
        wanted = name.strip()
        for entry in self._entries:
            if wanted in entry.aliases:
                found = self._class(entry)
                if found is not None:
                    return found
        # Classes may have names that are not known before they are loaded.
        for each in self.all():
            if each.connector.kafka_name and wanted in _aliases(each.connector.kafka_name):
                return each
        raise UnknownConnector(
            "Failed to find any class that implements Connector and which name matches "
            f"{name}, available connectors are: {', '.join(each.name for each in self.all())}"
        )

    def all(self) -> list[ConnectorClass]:
        """Return all classes; those that cannot be loaded are left out, with a line in the log."""
        found = (self._class(entry) for entry in self._entries)
        return list(dict.fromkeys(each for each in found if each is not None))

    def _class(self, entry: _Entry) -> ConnectorClass | None:
        if entry.name not in self._loaded:
            self._loaded[entry.name] = _checked(entry)
        return self._loaded[entry.name]


def _checked(entry: _Entry) -> ConnectorClass | None:
    try:
        loaded = entry.load()
    except Exception:
        logger.exception("connector %s cannot be loaded and is left out", entry.name)
        return None
    if not isinstance(loaded, type) or not issubclass(loaded, (SourceConnector, SinkConnector)):
        logger.error(
            "%s is left out: it is no class derived from SourceConnector or SinkConnector",
            entry.name,
        )
        return None
    if not isinstance(getattr(loaded, "task_class", None), type):
        logger.error("%s is left out: it has no task_class", entry.name)
        return None
    return ConnectorClass(loaded.kafka_name or entry.name, loaded)
