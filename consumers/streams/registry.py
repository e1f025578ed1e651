"""Finds topologies by name, or in a file.

Ours are in a table. Those of other packages are entry points of the group "waylog.streams":

    [project.entry-points."waylog.streams"]
    odometer = "my_package.odometer:Odometer"

A file holds a topology as a class derived from Topology that it defines itself, or as an object
that `stream(...)` made (consumers.streams.builder).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

from consumers.streams.processor import Topology
from consumers.streams.properties import Properties
from waylog.config import ConfigError

logger = logging.getLogger(__name__)

ENTRY_POINTS: Final = "waylog.streams"
#: What the name of a file's module begins with, so that it hides no other module.
_FILE: Final = "waylog_streams_file_"
#: Ours, as text: none is loaded before it is asked for.
BUILT_IN: Final = {
    "convert": "consumers.streams.convert.topology:Convert",
    "geofences": "consumers.streams.geofences.topology:Geofences",
    "heat-map": "consumers.streams.heat_map.topology:HeatMap",
    "meetings": "consumers.streams.meetings.topology:Meetings",
    "silence": "consumers.streams.silence.topology:Silence",
    "speed": "consumers.streams.speed:Speed",
    "trips": "consumers.streams.trips.topology:Trips",
}

#: Makes a topology with the command's properties; raises ConfigError.
Factory = Callable[[Properties], Topology]


def names() -> list[str]:
    """Return the names of all topologies that are installed."""
    installed = importlib.metadata.entry_points(group=ENTRY_POINTS)
    return sorted({*BUILT_IN, *(point.name for point in installed)})


def find(name: str) -> Factory:
    """Return what makes a topology; raises ConfigError for an unknown name."""
    return _factory(_attribute(name), name)


def _attribute(name: str) -> object:
    reference = BUILT_IN.get(name)
    if reference is not None:
        module, _, attribute = reference.partition(":")
        return getattr(importlib.import_module(module), attribute)
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        if point.name == name:
            return point.load()
    raise ConfigError(f"there is no topology {name}; there are: {', '.join(names())}")


def summary(name: str) -> str:
    """Return the line of a topology in a list, also of one that cannot be loaded."""
    try:
        return str(getattr(_attribute(name), "summary", ""))
    except Exception as error:
        return f"cannot be loaded: {type(error).__name__}: {error}"


def find_in_file(path: Path, name: str | None) -> Factory:
    """Run a Python file and return what makes the topology in it; raises ConfigError.

    `name` is needed if the file has several.
    """
    found = {_name_of(each): each for each in _topologies(_module(path))}
    if not found:
        raise ConfigError(f"--module {path}: the file defines no topology")
    if name is None and len(found) == 1:
        name = next(iter(found))
    if name is None:
        raise ConfigError(f"--module {path}: name one of its topologies: {', '.join(found)}")
    if name not in found:
        raise ConfigError(f"--module {path}: it has no topology {name}, but: {', '.join(found)}")
    return _factory(found[name], name)


def _module(path: Path) -> ModuleType:
    name = f"{_FILE}{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None or not path.is_file():
        raise ConfigError(f"--module {path}: there is no such Python file")
    module = importlib.util.module_from_spec(specification)
    # Its classes are looked up by the name of their module, by msgspec for instance.
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"--module {path}: {type(error).__name__}: {error}") from error
    return module


def _topologies(module: ModuleType) -> list[object]:
    found: list[object] = []
    for each in vars(module).values():
        if isinstance(each, type):
            is_own = each.__module__ == module.__name__ and not inspect.isabstract(each)
            if is_own and issubclass(each, Topology):
                found.append(each)
        elif isinstance(each, Topology):
            found.append(each)
    return found


def _name_of(found: object) -> str:
    return str(getattr(found, "name", ""))


def _factory(found: object, name: str) -> Factory:
    if isinstance(found, type) and issubclass(found, Topology):
        return found
    if isinstance(found, Topology):
        return lambda _properties: found
    raise ConfigError(f"topology {name} is no class derived from Topology, and no object of one")
