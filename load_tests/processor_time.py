"""The processor time that each part of the platform uses, from /proc."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")

#: The parts of the platform, by subcommand of `waylog`.
_PARTS: Final = {
    "broker": "broker",
    "gateway": "gateway",
    "resolver": "resolver",
    "geo": "geocoder",
    "history": "history",
    "places": "history",
    "up": "supervisor",
}

LOAD: Final = "load"


class Process(NamedTuple):
    """A running process."""

    pid: int
    parent: int
    cpu_s: float  # user and system time, without its children
    command: tuple[str, ...]


class Sample(NamedTuple):
    """The processor time of each part since the sampler began."""

    time: float  # s since 1970
    cpu_s: dict[str, float]


def read_process(pid: int) -> Process | None:
    """Read a process from /proc; return None if it is gone."""
    folder = Path("/proc") / str(pid)
    try:
        stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        command = (folder / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    # The name in parentheses may contain anything, so the fields are those after the last one.
    fields = stat.rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND
    words = tuple(word.decode("utf-8", "replace") for word in command if word)
    return Process(pid, int(fields[1]), cpu_s, words)


def read_processes() -> dict[int, Process]:
    """Return all processes that this one may see."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    found = (read_process(pid) for pid in pids)
    return {process.pid: process for process in found if process is not None}


def part_of(command: tuple[str, ...]) -> str | None:
    """Return the part of the platform that a command line starts, or None."""
    for index, word in enumerate(command[:-1]):
        name = Path(word).name
        if name == "waylog" or (word == "waylog.cli" and command[index - 1] == "-m"):
            return _PARTS.get(command[index + 1])
    return None


def parts_below(root: int, processes: dict[int, Process]) -> dict[int, str]:
    """Return the part of each process at or below `root`; a helper (JVM) has its parent's."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    parts: dict[int, str] = {}
    waiting: list[tuple[int, str | None]] = [(root, None)]
    while waiting:
        pid, inherited = waiting.pop()
        part = (part_of(processes[pid].command) if pid in processes else None) or inherited
        if part is not None:
            parts[pid] = part
        waiting.extend((child, part) for child in children.get(pid, ()))
    return parts


def parts_of_platform(bootstrap_servers: str, processes: dict[int, Process]) -> dict[int, str]:
    """Return the part of each process on this machine that belongs to these brokers."""
    parts: dict[int, str] = {}
    for process in processes.values():
        part = part_of(process.command)
        if part is None or part == "supervisor":
            continue
        if part == "broker":
            ours = any(_listens_on(word, bootstrap_servers) for word in process.command)
        else:
            ours = bootstrap_servers in process.command
        if ours:
            parts |= {
                pid: name
                for pid, name in parts_below(process.pid, processes).items()
                if pid not in parts
            }
    return parts


def _listens_on(config: str, bootstrap_servers: str) -> bool:
    if not config.endswith(".properties"):
        return False
    try:
        text = Path(config).read_text(encoding="utf-8")
    except OSError:
        return False
    return any(server in text for server in bootstrap_servers.split(","))


class Sampler:
    """A thread that samples every half second, so that processes that end are included."""

    INTERVAL_S: Final = 0.5

    def __init__(self, parts: Callable[[dict[int, Process]], dict[int, str]]) -> None:
        self._parts = parts
        self._first: dict[int, float] = {}
        self._last: dict[int, tuple[str, float]] = {}
        self.samples: list[Sample] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="processor-time", daemon=True)

    def __enter__(self) -> Sampler:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._sample()

    def used(self, began: float, ended: float) -> dict[str, float]:
        """Return the processor seconds of each part between two moments (s since 1970)."""
        first, last = self._at(began), self._at(ended)
        return {part: round(last[part] - first.get(part, 0.0), 3) for part in last}

    def _at(self, moment: float) -> dict[str, float]:
        """Interpolate between the last sample before the moment and the next one."""
        before = self.samples[0]
        for sample in self.samples:
            if sample.time >= moment:
                span = sample.time - before.time
                share = (moment - before.time) / span if span > 0 else 0.0
                return {
                    part: before.cpu_s.get(part, 0.0)
                    + max(0.0, share) * (cpu_s - before.cpu_s.get(part, 0.0))
                    for part, cpu_s in sample.cpu_s.items()
                }
            before = sample
        return before.cpu_s

    def _run(self) -> None:
        while not self._stopping.wait(self.INTERVAL_S):
            self._sample()

    def _sample(self) -> None:
        processes = read_processes()
        for pid, part in self._parts(processes).items():
            process = processes.get(pid)
            if process is not None:
                self._first.setdefault(pid, process.cpu_s if not self.samples else 0.0)
                self._last[pid] = (part, process.cpu_s)
        totals: dict[str, float] = {}
        for pid, (part, cpu_s) in self._last.items():
            totals[part] = totals.get(part, 0.0) + cpu_s - self._first[pid]
        self.samples.append(Sample(time.time(), totals))
