"""How long a connector waits before it asks a system again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from consumers.connect.configuration.definitions import (
    ConfigKey,
    ConfigType,
    Importance,
    grouped_key,
)
from consumers.connect.configuration.validators import at_least

_FIRST: Final = "retry.backoff.ms"
_LONGEST: Final = "retry.backoff.max.ms"
#: Doublings after which any pause is longer than any limit.
_DOUBLINGS_MAX: Final = 30


class Backoff(NamedTuple):
    """Pauses that double from the first to the longest."""

    first_ms: int
    longest_ms: int

    @staticmethod
    def of(parsed: Mapping[str, Any]) -> Backoff:
        """Return what the properties of `backoff_keys` say."""
        return Backoff(parsed[_FIRST], max(parsed[_LONGEST], parsed[_FIRST]))

    def pause_s(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row, at least one."""
        doublings = min(failures - 1, _DOUBLINGS_MAX)
        return min(self.first_ms << doublings, self.longest_ms) / 1000


def backoff_keys(group: str, order: int) -> list[ConfigKey]:
    """Return the definitions of the properties, of a group and from a place in it."""
    return [
        grouped_key(
            *(_FIRST, ConfigType.INT, group, order),
            "Milliseconds before the first repetition of what failed; they double each time.",
            importance=Importance.MEDIUM,
            default=1000,
            validator=at_least(1),
        ),
        grouped_key(
            *(_LONGEST, ConfigType.INT, group, order + 1),
            "The most milliseconds between repetitions, unless the server asks for more.",
            importance=Importance.LOW,
            default=60_000,
            validator=at_least(1),
        ),
    ]
