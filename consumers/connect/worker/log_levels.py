"""Levels of loggers, read and set while the worker runs (KIP-495, KIP-976).

Names are those of Python's loggers, levels those of log4j: TRACE is Python's 5, FATAL its CRITICAL.
"""

from __future__ import annotations

import logging
import time
from typing import Final

import msgspec

_ROOT: Final = "root"
_LEVELS: Final = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
    "ALL": 1,
}
_NAMES: Final = {number: name for name, number in _LEVELS.items()}


class LoggerLevel(msgspec.Struct, frozen=True):
    """The level of a logger, and when it was set."""

    level: str
    last_modified: int | None  # ms since 1970-01-01 UTC; None: not since the start


def is_level(text: str) -> bool:
    """Return whether a text is a level."""
    return text.upper() in _LEVELS


class LogLevels:
    """The loggers of this process."""

    def __init__(self) -> None:
        self._modified: Final[dict[str, int]] = {}

    def all(self) -> dict[str, LoggerLevel]:
        """Return the loggers that have a level of their own, by name."""
        own = {name: each for name, each in _loggers().items() if each.level != logging.NOTSET}
        own[_ROOT] = logging.getLogger()
        return {name: self._level(name, own[name]) for name in sorted(own)}

    def get(self, name: str) -> LoggerLevel | None:
        """Return a logger's level, that of its parents if it has none; None: no such logger."""
        if name.lower() == _ROOT:
            return self._level(_ROOT, logging.getLogger())
        found = _loggers().get(name)
        return None if found is None else self._level(name, found)

    def set(self, name: str, level: str) -> list[str]:
        """Set the level of a logger and of those below it; return their names."""
        number = _LEVELS[level.upper()]
        if name.lower() == _ROOT:
            changed = {_ROOT: logging.getLogger(), **_loggers()}
        else:
            changed = {each: found for each, found in _loggers().items() if each.startswith(name)}
            changed[name] = logging.getLogger(name)
        now_ms = round(time.time() * 1000)
        for each, found in changed.items():
            if found.getEffectiveLevel() != number or found.level == logging.NOTSET:
                found.setLevel(number)
                self._modified[each] = now_ms
        return sorted(changed)

    def _level(self, name: str, found: logging.Logger) -> LoggerLevel:
        number = found.getEffectiveLevel()
        text = _NAMES.get(number) or logging.getLevelName(number)
        return LoggerLevel(text, self._modified.get(name))


def _loggers() -> dict[str, logging.Logger]:
    found = logging.Logger.manager.loggerDict
    return {name: each for name, each in found.items() if isinstance(each, logging.Logger)}
