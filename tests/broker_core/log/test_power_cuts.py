"""A log on a disk that loses what was not synced, through many starts, cuts and truncations.

The simulations run whole brokers; this runs one log alone, so that thousands of power cuts, also in
the middle of a recovery, take a second.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker_core.environment import Environment
from broker_core.log import Log, LogConfig
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.record_reader import iterate_records
from broker_core.protocol.stored_batches import scan_batches
from tests.broker_core.log.support import StandingClock
from tests.simulation.simulated_disk import PowerCut, SimulatedDisk

_DIRECTORY = Path("/logs/location-0")
_HOUR_MS = 3_600_000


class _Machine:
    """One log, what has been appended to it, and what of that must survive."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = StandingClock()
        self.disk = SimulatedDisk(self.random)
        self.config = LogConfig(
            segment_bytes=self.random.choice([200, 500, 2000]),
            index_interval_bytes=self.random.choice([50, 300]),
            retention_ms=10 * _HOUR_MS,
        )
        self.values: list[bytes] = []
        self.start = 0
        self.durable_end = 0
        self.power_cuts = 0
        self.log = self._open()

    def step(self) -> None:
        """Do something at random; the power may be cut in the middle of it."""
        actions = {
            self._append: 10,
            self._flush: 6,
            self._cut_power: 2,
            self._kill: 1,
            self._close: 1,
            self._truncate: 1,
            self._delete: 1,
            self._roll: 1,
        }
        [action] = self.random.choices([*actions], [*actions.values()])
        if self.random.random() < 0.1:
            self.disk.steps_left = self.random.randint(0, 12)
        try:
            action()
            self.disk.steps_left = None
        except PowerCut:
            self._cut_power()

    def _append(self) -> None:
        values = [
            b"%d" % (len(self.values) + number) + b"x" * self.random.choice([0, 10, 150])
            for number in range(self.random.choice([1, 1, 3]))
        ]
        batch = build_batch([(self.clock.now, None, value, []) for value in values])
        self.values += values
        appended = self.log.append(batch, leader_epoch=0, now_ms=self.clock.now)
        assert appended.last_offset == len(self.values) - 1

    def _flush(self) -> None:
        self.durable_end = self.log.flush()
        assert self.durable_end == self.log.log_end_offset
        self.log.high_watermark = self.durable_end

    def _kill(self) -> None:
        self._start()

    def _close(self) -> None:
        self.log.close()
        self.durable_end = len(self.values)
        self._start()

    def _cut_power(self) -> None:
        self.power_cuts += 1
        self.disk.power_cut(rots=self.random.random() < 0.5)
        self._start()

    def _truncate(self) -> None:
        offset = self.random.randint(self.log.log_start_offset, self.log.log_end_offset)
        batches = scan_batches(self.log.read(offset, 1))[0]
        # A batch that reaches beyond the offset goes as a whole.
        end = batches[0].base_offset if batches else offset
        if end < self.log.log_start_offset:
            return
        self.durable_end = min(self.durable_end, end)
        self.log.truncate_to(offset)
        assert self.log.log_end_offset == end
        self._end_at(end)

    def _delete(self) -> None:
        if self.random.random() < 0.5:
            self.log.delete_records(self.random.randint(0, self.log.high_watermark))
        else:
            self.clock.now += self.random.choice([1, 11]) * _HOUR_MS
        self.log.apply_retention(self.clock.now)
        self.start = self.log.log_start_offset

    def _roll(self) -> None:
        if self.log.segments[-1].size:
            self.log.roll()

    def _open(self) -> Log:
        environment = Environment(self.clock, self.disk)
        while True:
            if self.random.random() < 0.2:
                self.disk.steps_left = self.random.randint(0, 12)
            try:
                log = Log.open(_DIRECTORY, "location", 0, self.config, environment)
            except PowerCut:
                self.power_cuts += 1
                self.disk.power_cut(rots=self.random.random() < 0.5)
            else:
                self.disk.steps_left = None
                return log

    def _start(self) -> None:
        self.log = self._open()
        # What a start has kept is durable before the log is used.
        self.durable_end = max(self.durable_end, self.log.log_start_offset)
        assert self.durable_end <= self.log.log_end_offset
        # What was deleted must not come back.
        assert self.start <= self.log.log_start_offset
        self.start = self.log.log_start_offset
        self.durable_end = self.log.log_end_offset
        self._end_at(self.log.log_end_offset)
        self.check()

    def _end_at(self, offset: int) -> None:
        assert offset <= len(self.values)
        del self.values[offset:]
        self.durable_end = min(self.durable_end, offset)
        self.log.high_watermark = self.durable_end

    def check(self) -> None:
        """Compare what can be read, from any offset, and look at every byte of the files."""
        log = self.log
        kept = range(log.log_start_offset, log.log_end_offset)
        found: list[tuple[int, bytes | None]] = []
        offset = kept.start
        while data := log.read(offset, 1000):
            found += [each[::3] for each in iterate_records(data) if each[0] >= offset]
            offset = found[-1][0] + 1
        assert found == [(number, self.values[number]) for number in kept]
        for number in self.random.sample(kept, min(3, len(kept))):
            offsets = [each[0] for each in iterate_records(log.read(number, 1))]
            assert number in offsets
        for segment in log.segments:
            content = self.disk.read(segment.path)
            headers, taken, problem = scan_batches(content, check_crc=True)
            assert (taken, problem) == (len(content), None), segment.path.name
            assert len(content) == segment.size
            if headers:
                assert headers[0].base_offset == segment.base_offset


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_nothing_durable_is_lost_and_nothing_cut_comes_back(first: int) -> None:
    power_cuts = 0
    for seed in range(first, first + 50):
        machine = _Machine(seed)
        for _ in range(60):
            machine.step()
        machine.check()
        power_cuts += machine.power_cuts
    assert power_cuts > 300
