"""What `waylog COMMAND --help` prints, asked without a process for each command."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache

from waylog.cli import main


def help_of(words: Sequence[str]) -> str:
    """The help of the command that `words` begin with, and of its action if the next is one."""
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
            # A process for the command would tell nobody of what others' modules warn of.
            warnings.catch_warnings(action="ignore"),
        ):
            main([*words, "--help"])
    except SystemExit as ended:
        return printed.getvalue() if ended.code == 0 else None
    return None
