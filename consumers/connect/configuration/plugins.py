"""What configuration has to know of connectors, converters, transforms and predicates."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from consumers.connect.configuration.definitions import ConfigDef, ConfigValue


class ConnectorType(enum.Enum):
    """What a connector does; `value` is its name in answers."""

    SOURCE = "source"
    SINK = "sink"


class PluginKind(enum.Enum):
    """What a class is for; `value` is its name in messages."""

    CONVERTER = "Converter"
    HEADER_CONVERTER = "HeaderConverter"
    TRANSFORMATION = "Transformation"
    PREDICATE = "Predicate"


class Plugin(NamedTuple):
    """A converter, transform or predicate that a configuration may name."""

    name: str  # the full name, as Kafka Connect writes it
    config: ConfigDef
    #: Makes one of properties without prefix, variables replaced; raises ConfigException.
    make: Callable[[Mapping[str, Any]], object] | None = None


class Plugins(Protocol):
    """The classes that a worker has."""

    def find(self, kind: PluginKind, name: str) -> Plugin | None:
        """Return the class by its full name or an alias, None if there is none."""

    def names(self, kind: PluginKind) -> list[str]:
        """Return the full names of all classes of a kind."""

    @property
    def version(self) -> str:
        """The version of all of them."""


class PluginTable:
    """Classes by name; a class has its full name and the aliases that Kafka Connect allows."""

    __slots__ = ("_by_name", "_names", "version")

    def __init__(
        self, plugins: Mapping[PluginKind, Mapping[str, Plugin]], version: str = "unknown"
    ) -> None:
        """`plugins` are by kind and by any of their names; all have the same version."""
        self.version: Final = version
        self._by_name: Final = {kind: dict(by_name) for kind, by_name in plugins.items()}
        self._names: Final = {
            kind: list(dict.fromkeys(plugin.name for plugin in by_name.values()))
            for kind, by_name in plugins.items()
        }

    def find(self, kind: PluginKind, name: str) -> Plugin | None:
        """Return the class by its full name or an alias, None if there is none."""
        return self._by_name.get(kind, {}).get(name)

    def names(self, kind: PluginKind) -> list[str]:
        """Return the full names of all classes of a kind."""
        return self._names.get(kind, [])


class ExactlyOnceSupport(enum.Enum):
    """The answer of a source connector: can it write each record once (KIP-618)?"""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"  # the connector does not say


class ConnectorPlugin(NamedTuple):
    """A connector's class, as far as validation needs it."""

    name: str
    type: ConnectorType
    config: ConfigDef
    #: What the connector finds out about several properties at once, instead of
    #: `config.validate`; it gets the values with their variables replaced.
    validate: Callable[[Mapping[str, str]], Mapping[str, ConfigValue]] | None = None
    exactly_once_support: Callable[[Mapping[str, str]], ExactlyOnceSupport] | None = None
    defines_boundaries: Callable[[Mapping[str, str]], bool] | None = None
    version: str = "unknown"


def aliases_of(full_name: str, kind: PluginKind) -> tuple[str, ...]:
    """Return the names of a class: in full, without its package, without its kind (`JsonConverter`,
    `Json`), as Kafka Connect's `PluginUtils` does.
    """
    simple = full_name.rpartition(".")[2]
    suffix = {
        PluginKind.HEADER_CONVERTER: "Converter",
        PluginKind.CONVERTER: "Converter",
        PluginKind.TRANSFORMATION: "Transformation",
        PluginKind.PREDICATE: "Predicate",
    }[kind]
    pruned = simple.removesuffix(suffix)
    return tuple(dict.fromkeys(name for name in (full_name, simple, pruned) if name))
