"""The environment of processes that are started in threads."""

from __future__ import annotations

import os


def own_environment() -> dict[str, str]:
    """Return this process's environment, while pytest changes it in the main thread.

    It sets and removes PYTEST_CURRENT_TEST with each test. A copy made by `dict` fails when a
    variable goes between the reading of its name and that of its value.
    """
    found = ((name, os.environ.get(name)) for name in list(os.environ))
    return {name: value for name, value in found if value is not None}
