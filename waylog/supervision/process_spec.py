"""What a supervised process is, and what can become of its start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

STOP_TIMEOUT_S: Final = 10.0
WATCHDOG_S: Final = 60.0
#: The exit status for a wrong command line: starting again would not help.
USAGE_STATUS: Final = 2
FAILED_STATUS: Final = 1


class StartError(Exception):
    """A process did not become ready; the message is one line with the process's last line."""

    def __init__(self, message: str, status: int = FAILED_STATUS) -> None:
        """`status` is the exit status for the process that started it."""
        super().__init__(message)
        self.status = status


class SupervisionError(Exception):
    """The supervision of a process has ended by an error; the message is one line."""


@dataclass(frozen=True)
class ProcessSpec:
    """The description of a process to keep alive."""

    name: str
    argv: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    #: Seconds to become ready, at every start.
    ready_timeout_s: float = 60.0
    #: Seconds after which a process is restarted that has reported progress, and then no more.
    watchdog_s: float = WATCHDOG_S
    #: Seconds between SIGTERM and SIGKILL.
    stop_timeout_s: float = STOP_TIMEOUT_S
