"""A simulated network that delays, loses, duplicates and reorders messages, and can be cut."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.scheduler import Scheduler


@dataclass
class Weather:
    """The present quality of the network: a delay in seconds, and probabilities of faults."""

    delay_max: float = 0.005
    lost: float = 0.0
    doubled: float = 0.0
    slow: float = 0.0  # the share of messages that take up to a second more


class Network:
    """Delivers messages between nodes, which are numbered."""

    def __init__(self, scheduler: Scheduler, randomness: random.Random) -> None:
        self._scheduler = scheduler
        self._random = randomness
        self._cut: set[tuple[int, int]] = set()
        self.weather = Weather()
        self.faults = {"lost": 0, "doubled": 0, "slow": 0, "cut": 0}

    def cut(self, source: int, destination: int) -> None:
        """Let nothing pass from one node to the other; the way back is not affected."""
        self._cut.add((source, destination))

    def heal(self) -> None:
        """End all network faults."""
        self._cut.clear()
        self.weather = Weather()

    def send(self, source: int, destination: int, deliver: Callable[[], None]) -> None:
        """Deliver a message after a delay; it may be lost or delivered twice."""
        weather, chance = self.weather, self._random.random
        if (source, destination) in self._cut:
            self.faults["cut"] += 1
            return
        if chance() < weather.lost:
            self.faults["lost"] += 1
            return
        copies = 1
        if chance() < weather.doubled:
            self.faults["doubled"] += 1
            copies = 2
        for _ in range(copies):
            delay = chance() * weather.delay_max
            if chance() < weather.slow:
                self.faults["slow"] += 1
                delay += chance()
            self._scheduler.after(delay, deliver)
