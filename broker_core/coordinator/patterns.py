"""Regular expressions that clients send, matched within bounds of time and memory.

RE2 matches in linear time, but linear in the product of the text and the program, to which a short
expression can expand; with groups that capture, far more. So a program has a maximal size, nothing
is captured, and matching many names ends with an error when it takes too long.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import re2

from broker_core.errors import InvalidRegularExpression

#: Characters of an expression, instructions of its program, and bytes for states while it matches.
_CHARACTERS_MAX: Final = 2_048
_PROGRAM_MAX: Final = 1_000
_MEMORY_MAX: Final = 1 << 20
#: Seconds of processor time for all names.
_MATCHING_S_MAX: Final = 0.1

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True
_OPTIONS.max_mem = _MEMORY_MAX


class Pattern:
    """A compiled expression, which names match as a whole."""

    def __init__(self, expression: str) -> None:
        """Raises InvalidRegularExpression, also for one that would take too long to match."""
        if len(expression) > _CHARACTERS_MAX:
            raise InvalidRegularExpression(
                f"A regular expression has at most {_CHARACTERS_MAX} characters, not "
                f"{len(expression)}."
            )
        try:
            self._compiled: Any = re2.compile(expression, options=_OPTIONS)
        except re2.error as error:
            raise InvalidRegularExpression(
                f"`{expression}` is not a valid regular expression: {error}"
            ) from None
        if self._compiled.programsize > _PROGRAM_MAX:
            raise InvalidRegularExpression(
                f"`{expression}` is too complex: its program has {self._compiled.programsize} "
                f"instructions, at most {_PROGRAM_MAX} are allowed."
            )

    def matching(self, names: Iterable[str]) -> list[str]:
        """Return the names that match; raises InvalidRegularExpression if that takes too long."""
        until = time.thread_time() + _MATCHING_S_MAX
        found = []
        for name in names:
            if self._compiled.fullmatch(name):
                found.append(name)
            if time.thread_time() > until:
                raise InvalidRegularExpression(
                    f"`{self._compiled.pattern}` takes too long to match against all names."
                )
        return found


@lru_cache(64)
def compile_pattern(expression: str) -> Pattern:
    """Return the pattern of an expression; raises InvalidRegularExpression."""
    return Pattern(expression)
