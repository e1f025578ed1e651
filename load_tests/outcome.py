"""The results of one load generator process, second by second, and their files.

A process writes `account-<index>.msgpack` and `outcome-<index>.json`; the command and the report
join those of all processes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from load_tests.account import Account, DeviceAccount
from load_tests.latency import Pairs, merged


class Second(msgspec.Struct):
    """The results of (about) one second."""

    time: float  # end of the second, s since 1970
    sent: int
    acknowledged: int
    pushed: int
    connected: int  # devices that may send, at the end
    acknowledgements: list[tuple[int, int]]  # latencies: pairs of microseconds and count
    pushes: list[tuple[int, int]]


class Outcome(msgspec.Struct, kw_only=True):
    """The result of a process; those of several processes can be added up."""

    run: str
    protocol: str
    devices: int = 0
    due: int = 0  # fixes that were due
    sent: int = 0
    acknowledged: int = 0
    resent: int = 0
    late: int = 0  # sent more than 100 ms after they were due
    requests: int = 0
    failures: int = 0  # failed requests or connections
    disconnects: int = 0
    pushes: int = 0
    push_bytes: int = 0
    began: float = 0.0  # when the first fix was due, s since 1970
    ended: float = 0.0  # when the last fix was due
    cpu_s: float = 0.0  # of this process while it was sending
    seconds: list[Second] = []

    def write(self, folder: Path, index: int, user: str, devices: list[DeviceAccount]) -> None:
        """Write both files of this process."""
        folder.mkdir(parents=True, exist_ok=True)
        Account(self.run, user, devices).write(folder / f"account-{index}.msgpack")
        path = folder / f"outcome-{index}.json"
        path.write_bytes(msgspec.json.encode(self))

    @property
    def acknowledgements(self) -> Pairs:
        """The latencies of all acknowledgements."""
        return merged(second.acknowledgements for second in self.seconds)

    @property
    def push_latencies(self) -> Pairs:
        """The latencies from a fix to its address."""
        return merged(second.pushes for second in self.seconds)


def read_outcomes(paths: Iterable[Path]) -> Outcome:
    """Read the outcomes of several processes of one run, and add them up."""
    outcomes = [msgspec.json.decode(path.read_bytes(), type=Outcome) for path in paths]
    if not outcomes:
        raise ValueError("no outcome was written")
    total = Outcome(run=outcomes[0].run, protocol=outcomes[0].protocol)
    for name in _SUMS:
        setattr(total, name, sum(getattr(each, name) for each in outcomes))
    total.began = min(each.began for each in outcomes)
    total.ended = max(each.ended for each in outcomes)
    total.seconds = _by_second([second for each in outcomes for second in each.seconds])
    return total


_SUMS = (
    *("devices", "due", "sent", "acknowledged", "resent", "late", "requests", "failures"),
    *("disconnects", "pushes", "push_bytes", "cpu_s"),
)


def _by_second(seconds: list[Second]) -> list[Second]:
    groups: dict[int, list[Second]] = {}
    for second in seconds:
        groups.setdefault(round(second.time), []).append(second)
    return [
        Second(
            time=float(moment),
            sent=sum(each.sent for each in group),
            acknowledged=sum(each.acknowledged for each in group),
            pushed=sum(each.pushed for each in group),
            connected=sum(each.connected for each in group),
            acknowledgements=merged(each.acknowledgements for each in group),
            pushes=merged(each.pushes for each in group),
        )
        for moment, group in sorted(groups.items())
    ]


class SecondsRecorder:
    """A recorder that collects the reports of devices driven from Python, per second."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._acknowledgements: dict[int, int] = {}
        self._pushes: dict[int, int] = {}
        self._sent = 0
        self.connected = 0

    def fixes_sent(self, count: int = 1) -> None:
        """Count fixes that were sent for the first time."""
        self._sent += count
        self._outcome.sent += count

    def fixes_acknowledged(self, latency_s: float, count: int = 1) -> None:
        """Count acknowledged fixes; the latency counts from when they were due."""
        _add(self._acknowledgements, latency_s, count)
        self._outcome.acknowledged += count

    def address_pushed(self, latency_s: float, size: int) -> None:
        """Count an address that was received."""
        _add(self._pushes, latency_s, 1)
        self._outcome.pushes += 1
        self._outcome.push_bytes += size

    def cut(self) -> Second:
        """Close the current second and return it."""
        second = Second(
            time=time.time(),
            sent=self._sent,
            acknowledged=sum(self._acknowledgements.values()),
            pushed=sum(self._pushes.values()),
            connected=self.connected,
            acknowledgements=sorted(self._acknowledgements.items()),
            pushes=sorted(self._pushes.items()),
        )
        self._acknowledgements, self._pushes, self._sent = {}, {}, 0
        self._outcome.seconds.append(second)
        return second


def _add(latencies: dict[int, int], latency_s: float, count: int) -> None:
    microseconds = max(0, int(latency_s * 1e6))
    # Round to three significant digits, which keeps the number of different values small.
    for step in (10_000_000, 1_000_000, 100_000, 10_000, 1_000):
        if microseconds >= step:
            microseconds -= microseconds % (step // 100)
            break
    latencies[microseconds] = latencies.get(microseconds, 0) + count
