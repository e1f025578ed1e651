"""Makes a stream processor what a group's worker can run."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Generic

from consumers.streams.output_formats import OutputFormats
from consumers.streams.processor import Context, StreamProcessor
from consumers.streams.store import Store, ValueT
from consumers.worker.records import InputRecord, OutputRecord, StateRecord
from waylog.history.erasures import Erasure
from waylog.process.log_throttle import RepeatedFailure

logger = logging.getLogger(__name__)

#: Time between two calls of `punctuate`.
PUNCTUATE_MS: Final = 1000


class StreamTask(Generic[ValueT]):
    """The stores of a processor's partitions, and the records that it forwards."""

    def __init__(
        self,
        processor: StreamProcessor[ValueT],
        state_topic: str,
        formats: OutputFormats | None = None,
    ) -> None:
        """`formats` are those of topics whose records are no JSON; they are closed elsewhere."""
        self._processor = processor
        self._formats: Final = formats
        #: The changelog topic.
        self.state_topic: Final = state_topic
        self.refused = 0
        # Erasures that wait to be taken, from the thread of their log; and those that were.
        self._erased: deque[Erasure] = deque()
        self._erasures: dict[str, int] = {}
        # Stores without what those erase that were taken.
        self._cleaned: dict[int, Store[ValueT]] = {}
        self._punctuated_ms = 0
        self._failure = RepeatedFailure()

    def erased(self, erasure: Erasure) -> None:
        """Take an erasure, at the start all that there are; any thread may call this."""
        self._erased.append(erasure)

    def new_state(self) -> Store[ValueT]:
        """Return the store of a partition that was just assigned."""
        return Store(self._processor.value_type)

    def process(
        self,
        batch: Mapping[int, Sequence[InputRecord]],
        states: Mapping[int, Store[ValueT]],
        now_ms: int,
    ) -> list[OutputRecord]:
        """Return what the processor forwards for a batch."""
        self._clean(states)
        context = Context(self._processor.name, now_ms)
        for partition, records in batch.items():
            self._processor.process(records, states[partition], context)
        self.refused += context.refused
        return self._encoded(context)

    def _encoded(self, context: Context) -> list[OutputRecord]:
        if self._formats is None:
            return context.outputs
        return self._formats.encoded(context.outputs, self._processor.name, context.now_ms)

    def late_results(self, states: Mapping[int, Store[ValueT]], now_ms: int) -> list[OutputRecord]:
        """Return what the processor forwards because time has passed; forgets erased devices."""
        self._clean(states)
        # Stores of partitions that were given away are not kept.
        self._cleaned = {partition: self._cleaned[partition] for partition in states}
        self._take_erasures(states)
        if 0 <= now_ms - self._punctuated_ms < PUNCTUATE_MS:
            return []
        self._punctuated_ms = now_ms
        context = Context(self._processor.name, now_ms)
        for store in states.values():
            try:
                self._processor.punctuate(store, context)
            except Exception as error:
                if self._failure.is_new(error):
                    logger.exception("topology %s failed in punctuate", self._processor.name)
        return self._encoded(context)

    def state_changes(
        self, states: Mapping[int, Store[ValueT]]
    ) -> Mapping[int, Sequence[StateRecord]]:
        """Return the changes of the stores, for the changelog."""
        changes = ((partition, store.take_changes()) for partition, store in states.items())
        return {partition: records for partition, records in changes if records}

    def _clean(self, states: Mapping[int, Store[ValueT]]) -> None:
        """Remove from stores that were restored what was erased while nobody had them."""
        for partition, store in states.items():
            if self._cleaned.get(partition) is not store:
                self._cleaned[partition] = store
                if self._erasures:
                    self._processor.erase(self._erasures, store)

    def _take_erasures(self, states: Mapping[int, Store[ValueT]]) -> None:
        new = [self._erased.popleft() for _ in range(len(self._erased))]
        if not new:
            return
        erasures = {erasure.device: erasure.before for erasure in new}
        self._erasures.update(erasures)
        for store in states.values():
            self._processor.erase(erasures, store)
