"""Jobs of Waylog on Spark, and functions for DataFrames: `from spark import stay_points, visits`.

docs/spark.md says how they are used. Nothing is imported before a function is asked for, so that
what only wants a job's command does not load pyspark.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from spark.api.geography import h3_cell, reverse_geocode
    from spark.api.movement import favourite_places, stay_candidates, stay_points, trips, visits
    from spark.runtime.session import close_session, open_session

__all__ = [
    "close_session",
    "favourite_places",
    "h3_cell",
    "open_session",
    "reverse_geocode",
    "stay_candidates",
    "stay_points",
    "trips",
    "visits",
]

_MODULES: Final = {
    "close_session": "spark.runtime.session",
    "favourite_places": "spark.api.movement",
    "h3_cell": "spark.api.geography",
    "open_session": "spark.runtime.session",
    "reverse_geocode": "spark.api.geography",
    "stay_candidates": "spark.api.movement",
    "stay_points": "spark.api.movement",
    "trips": "spark.api.movement",
    "visits": "spark.api.movement",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_MODULES[name]), name)
    except ImportError as error:
        if Path(__file__).exists():
            raise
        raise ImportError(
            f"{__file__}: Python loads no compiled modules out of a zip, as of --py-files; install "
            f"Waylog, or ship an environment by --archives (docs/spark.md): {error}"
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
