"""The output of `waylog COMMAND --help`, without a process for each command."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache

from waylog.cli import main


def help_of(words: Sequence[str]) -> str:
    """Return the help of the command in `words[0]`, and of its action if `words[1]` is one."""
    shown = _printed(words[0])
    assert shown is not None, f"waylog {words[0]} has no help"
    return shown + ((_printed(*words[:2]) or "") if len(words) > 1 else "")


@cache
def _printed(*words: str) -> str | None:
    printed = io.StringIO()
    try:
        with (
            redirect_stdout(printed),
            redirect_stderr(io.StringIO()),
            # Warnings of modules that the command loads do not concern the test.
            warnings.catch_warnings(action="ignore"),
        ):
            main([*words, "--help"])
    except SystemExit as ended:
        return printed.getvalue() if ended.code == 0 else None
    return None
