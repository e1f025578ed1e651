"""All classes that a worker has: connectors, converters, transforms and predicates."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from functools import cache
from typing import Final

from consumers.connect.configuration.connector_properties import (
    CONNECTOR_CLASS,
    CONNECTOR_VERSION,
    SINK_CONFIG,
    SOURCE_CONFIG,
)
from consumers.connect.configuration.connector_validation import KeyInfo, key_info
from consumers.connect.configuration.plugins import (
    ConnectorPlugin,
    ConnectorType,
    PluginKind,
    PluginTable,
)
from consumers.connect.converters.by_name import converter_plugins
from consumers.connect.herder.answers import PluginInfo
from consumers.connect.herder.refusals import NotFound
from consumers.connect.plugins.connector import SinkConnector, SourceConnector
from consumers.connect.plugins.registry import ConnectorClass, ConnectorRegistry, UnknownConnector
from consumers.connect.transforms.by_name import transform_plugins

_KINDS: Final = {
    PluginKind.TRANSFORMATION: "transformation",
    PluginKind.PREDICATE: "predicate",
    PluginKind.CONVERTER: "converter",
    PluginKind.HEADER_CONVERTER: "header_converter",
}
_SUFFIX: Final = "Connector"


@cache
def waylog_version() -> str:
    """Return the version of this program."""
    try:
        return importlib.metadata.version("waylog")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # a source tree that was not installed


class WorkerPlugins:
    """The classes by name. It may be used by several threads."""

    def __init__(self) -> None:
        self.connectors: Final = ConnectorRegistry()
        self.table: Final = PluginTable(
            {**converter_plugins(), **transform_plugins()}, waylog_version()
        )
        self._types: Final[dict[str | None, str]] = {}

    def type_of_configuration(self, properties: Mapping[str, str]) -> str:
        """Return the type of a configuration's connector; asked for often, so it is kept."""
        name = properties.get(CONNECTOR_CLASS)
        if name not in self._types:
            self._types[name] = self.type_of(name)
        return self._types[name]

    def version_of_configuration(self, properties: Mapping[str, str]) -> str | None:
        """Return the version of a configuration's connector, None if it is unknown (KIP-891)."""
        try:
            return _version(self.connectors.find(properties.get(CONNECTOR_CLASS) or ""))
        except UnknownConnector:
            return None

    def type_of(self, class_name: str | None) -> str:
        """Return the type of a connector's class: source, sink or unknown."""
        try:
            found = self.connectors.find(class_name or "")
        except UnknownConnector:
            return "unknown"
        return "source" if found.is_source else "sink"

    def listed(self, *, connectors_only: bool) -> list[PluginInfo]:
        """Return all classes, sinks first; converters and transforms only if they are wanted."""
        connectors = self.connectors.all()
        listed = [
            PluginInfo(each.name, "source" if each.is_source else "sink", _version(each))
            for each in sorted(connectors, key=lambda each: (each.is_source, each.name))
        ]
        if not connectors_only:
            listed += [
                PluginInfo(name, type_, waylog_version())
                for kind, type_ in _KINDS.items()
                for name in sorted(self.table.names(kind))
            ]
        return listed

    def properties_of(self, name: str) -> list[KeyInfo]:
        """Return the definitions of a class's properties (KIP-769); raises NotFound."""
        try:
            found = self.connectors.find(name)
        except UnknownConnector:
            return self._properties_of_others(name)
        base = SOURCE_CONFIG if found.is_source else SINK_CONFIG
        own = found.connector.config_def.keys
        common = base.with_defaults({CONNECTOR_VERSION: _version(found)}).keys
        return [key_info(each) for each in {**own, **common, **own}.values()]

    def _properties_of_others(self, name: str) -> list[KeyInfo]:
        for kind in _KINDS:
            plugin = self.table.find(kind, name)
            if plugin is not None:
                return [key_info(each) for each in plugin.config.keys.values()]
        raise NotFound(f"Unknown plugin {name}.")


def _version(found: ConnectorClass) -> str:
    is_ours = found.connector.__module__.startswith("consumers.")
    return waylog_version() if is_ours else found.connector.version


def connector_plugin(found: ConnectorClass) -> ConnectorPlugin:
    """Return what validation has to know of a connector's class, of a new object of it."""
    connector = found.connector()
    type_ = ConnectorType.SOURCE if isinstance(connector, SourceConnector) else ConnectorType.SINK
    support = defines = None
    if isinstance(connector, SourceConnector) and (
        type(connector).exactly_once_support is not SourceConnector.exactly_once_support
    ):
        support = connector.exactly_once_support
    if isinstance(connector, SourceConnector):
        defines = connector.can_define_transaction_boundaries
    assert isinstance(connector, (SourceConnector, SinkConnector)), "the registry has checked it"
    return ConnectorPlugin(
        *(found.name, type_, connector.config_def, connector.validate, support, defines),
        version=_version(found),
    )


def same_plugin(included: str, requested: str) -> bool:
    """Return whether a class in a configuration is the one of the path."""

    def normalized(name: str) -> str:
        return name.removesuffix(_SUFFIX) if name != _SUFFIX else name

    return normalized(included.strip()).endswith(normalized(requested))
