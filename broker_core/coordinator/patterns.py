"""Regular expressions that clients send, matched within bounds of time and memory.

RE2 matches in linear time, but linear in the product of the text and the program, to which a short
expression can expand; with groups that capture, far more. So a program has a maximal size, nothing
is captured, and matching many names ends with an error when it takes too long. Expressions and
names are matched as bytes in UTF-8: classes of Unicode characters would be large programs.
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
#: Characters of a name that an expression can match.
_NAME_MAX: Final = 1_000
#: Seconds of processor time for all names, and more for each: an ordinary expression takes two
#: microseconds.
_MATCHING_S_MAX: Final = 0.01
_NAME_S_MAX: Final = 0.000_005

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True
_OPTIONS.max_mem = _MEMORY_MAX
_OPTIONS.encoding = re2.Options.Encoding.LATIN1


class Pattern:
    """A compiled expression, which names match as a whole."""

    def __init__(self, expression: str) -> None:
        """Raises InvalidRegularExpression, also for one that would take too long to match."""
        self._expression = expression
        if len(expression) > _CHARACTERS_MAX:
            raise InvalidRegularExpression(
                f"A regular expression has at most {_CHARACTERS_MAX} characters, not "
                f"{len(expression)}."
            )
        try:
            self._compiled: Any = re2.compile(expression.encode(), options=_OPTIONS)
        except re2.error as error:
            raise InvalidRegularExpression(
                f"`{expression}` is not a valid regular expression: {_reason(error)}"
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
            if len(name) <= _NAME_MAX and self._compiled.fullmatch(name.encode()):
                found.append(name)
            until += _NAME_S_MAX
            if time.thread_time() > until:
                raise InvalidRegularExpression(
                    f"`{self._expression}` takes too long to match against all names."
                )
        return found


def _reason(error: Exception) -> str:
    (reason,) = error.args
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


@lru_cache(64)
def compile_pattern(expression: str) -> Pattern:
    """Return the pattern of an expression; raises InvalidRegularExpression."""
    return Pattern(expression)
