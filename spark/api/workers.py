"""What Spark's Python workers are given to run, which tells when this package is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def in_worker(module: str, name: str, *arguments: object) -> Callable[..., Any]:
    """Return a function that calls one of a module with its own arguments, and then `arguments`.

    It is pickled as code and not by its name: a worker that cannot import the module can then say
    what it lacks. Spark alone says that there is no module `spark`, which reads as if Spark were
    missing.
    """

    def call(*given: Any) -> Any:
        import importlib
        import socket
        import sys

        try:
            function = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise ImportError(
                f"the Python of Spark's worker on {socket.gethostname()} ({sys.executable}) cannot "
                f"import {module}: {error}. Executors need an environment with Waylog, such as a "
                "packed one (--archives) that PYSPARK_PYTHON names; a zip of --py-files is not "
                "enough, since Python loads no compiled modules from it (docs/spark.md)"
            ) from error
        return function(*given, *arguments)

    return call
