"""The properties of a topology, as `waylog streams run NAME --property name=value` gives them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence

from waylog.config import ConfigError


def of_topologies(texts: Mapping[str, str], topologies: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the properties of each topology that runs in one process, by its name.

    What begins with the name of one and a dot is that one's, any other is of the only one. Raises
    ConfigError for a property that is of none.
    """
    found: dict[str, dict[str, str]] = {name: {} for name in topologies}
    for name, text in texts.items():
        topology, _, rest = name.partition(".")
        if topology in found and rest:
            found[topology][rest] = text
        elif len(topologies) == 1:
            found[topologies[0]][name] = text
        else:
            raise ConfigError(
                f"--property {name}: say of which topology, for example "
                f"{topologies[0]}.{name}; there are: {', '.join(topologies)}"
            )
    return found


class Properties:
    """Texts by name. A topology asks for those that it knows; any other is a mistake."""

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self._texts = dict(texts or {})
        self._known: set[str] = set()

    def text(self, name: str, default: str) -> str:
        """Return a property."""
        self._known.add(name)
        return self._texts.get(name, default)

    def number(self, name: str, default: float, *, least: float = -math.inf) -> float:
        """Return a property that is a number of at least `least`; raises ConfigError."""
        self._known.add(name)
        text = self._texts.get(name)
        return default if text is None else _number(name, text, least)

    def numbers_below(self, prefix: str, *, least: float = -math.inf) -> dict[str, float]:
        """Return numbers by what their names have after `prefix.`; raises ConfigError."""
        begin = f"{prefix}."
        names = [name for name in self._texts if name.startswith(begin)]
        self._known.update(names)
        return {name.removeprefix(begin): _number(name, self._texts[name], least) for name in names}

    def check_all_known(self, topology: str) -> None:
        """Raise ConfigError for a property that nobody has asked for."""
        for name in self._texts:
            if name not in self._known:
                close = difflib.get_close_matches(name, self._known, 1)
                hint = f"; did you mean {close[0]}?" if close else ""
                known = ", ".join(sorted(self._known)) or "none"
                raise ConfigError(
                    f"--property {name}: topology {topology} has no such property{hint} "
                    f"(it has: {known})"
                )


def _number(name: str, text: str, least: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"--property {name}={text}: a number is expected")
    if number < least:
        raise ConfigError(f"--property {name}={text}: at least {least:g} is expected")
    return number
