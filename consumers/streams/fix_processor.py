"""Processors of fixes: each device's fixes in the order of their times, each once."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from consumers.streams.processor import FUTURE, Context, StreamProcessor
from consumers.streams.properties import Properties
from consumers.streams.store import Store
from consumers.worker.fix_records import NotAFix, fix_of
from consumers.worker.records import InputRecord
from waylog.messages import Fix, live_time
from waylog.process.log_throttle import RepeatedFailure

logger = logging.getLogger(__name__)


class DeviceState(msgspec.Struct, array_like=True, gc=False):
    """What is remembered of a device; derive from it. Arrays keep the changelog small."""

    #: The event time of the newest fix that was processed, in ms since 1970. The engine sets it.
    time: int


class HasTime(Protocol):
    """A state that is no DeviceState, but has its first member."""

    time: int


DeviceStateT = TypeVar("DeviceStateT", bound=HasTime)


class FixProcessor(StreamProcessor[DeviceStateT]):
    """Hands each new fix, and the state of its device, to `observe`.

    The event time of a fix is `live_time`: its own time, or that of its arrival if its own is
    absurd. One that is ahead of this machine's clock by CLOCK_AHEAD_MS even so is refused. A fix is
    new if its event time is later than that of all fixes of its device that were processed before.
    Any other is late, or comes again: it changes nothing. So the results do not depend on how often
    a fix comes, and nothing that was told is contradicted by what comes later; of two fixes of the
    same millisecond the first one counts.

    The newest time is part of the state: without a state any fix is new.
    """

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        self._failure = RepeatedFailure()

    def prepare(self, fixes: Sequence[Fix]) -> None:
        """Look at the fixes of a batch, for what is cheaper for all of them than for each.

        Those that turn out to be late are among them.
        """

    @abstractmethod
    def observe(
        self, fix: Fix, time: int, state: DeviceStateT | None, record: InputRecord, context: Context
    ) -> DeviceStateT | None:
        """Process a fix whose event time is `time`; return what to remember of its device.

        `state` is what was returned for the device's fix before, and may be changed and returned.
        None forgets the device. `record` is for `context.forward`.
        """

    def process(
        self, records: Sequence[InputRecord], store: Store[DeviceStateT], context: Context
    ) -> None:
        """Hand the new fixes on."""
        fixes: list[Fix] = []
        of: list[InputRecord] = []
        for record in records:
            try:
                fixes.append(fix_of(record.value()))
                of.append(record)
            except NotAFix as error:
                context.refuse(record, str(error))
        self.prepare(fixes)
        get, observe = store.get, self.observe
        for fix, record in zip(fixes, of, strict=True):
            time = live_time(fix.time, fix.received)
            state = get(fix.device)
            if state is not None and time <= state.time:
                continue
            if time > context.latest:
                context.refuse(record, FUTURE)
                continue
            try:
                found = observe(fix, time, state, record, context)
            except Exception as error:
                # A bug: one record less is better than none at all.
                if self._failure.is_new(error):
                    logger.exception("topology %s failed at a fix", self.name)
                context.refuse(record, f"topology {self.name} failed: {type(error).__name__}")
                continue
            if found is None:
                store.delete(fix.device)
            else:
                found.time = time
                store.put(fix.device, found)
            store.stream_time = max(store.stream_time, time)
