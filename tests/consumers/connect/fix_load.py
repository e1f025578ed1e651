"""Appends numbered fixes at a rate, while something else is stopped and killed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Producer

from tests.consumers.connect.connect_process import WAIT_S
from tests.consumers.connect.sink_harness import fix
from waylog.kafka.clients import producer_config

_RATE: Final = 2000
_STEP_S: Final = 0.05
_DEVICES: Final = 100


class FixLoad:
    """Appends fixes until it is told to stop; `sent` are those that are acknowledged.

    The fixes are `fix(0)` to `fix(sent - 1)`, and every `poison_every`-th one is followed by a
    record that no sink can read.
    """

    def __init__(
        self, servers: str, topic: str, rate: int = _RATE, *, poison_every: int = 0
    ) -> None:
        self._producer = Producer(producer_config(servers, "tests") | {"linger.ms": 5})
        self._topic = topic
        self._rate = rate
        self._poison_every = poison_every
        self._stop = threading.Event()
        self.sent = 0
        self.poison: list[bytes] = []

    def run(self) -> None:
        number = 0
        began = time.monotonic()
        while not self._stop.wait(_STEP_S):
            # What the machine had no time for is made up for.
            due = int((time.monotonic() - began) * self._rate)
            while number < due:
                self._append(number)
                number += 1
            self._producer.poll(0)
        assert self._producer.flush(WAIT_S) == 0

    def _append(self, number: int) -> None:
        device = f"user{number % _DEVICES}/phone"
        value = json.dumps(fix(number, device, accuracy=number % 50 or None)).encode()
        self._producer.produce(self._topic, value, device, on_delivery=self._delivered)
        if self._poison_every and number % self._poison_every == self._poison_every - 1:
            poison = b"no json after %d" % number
            self._producer.produce(self._topic, poison, device)
            self.poison.append(poison)

    def _delivered(self, error: Any, _: Any) -> None:
        assert error is None, error
        self.sent += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
