"""Topologies out of the classic operators: filter, map, aggregate, reduce.

    topology = (
        stream("fast-fixes", "location", Fix)
        .filter(lambda fix: (fix.speed or 0) > 30)
        .map(lambda fix: {"device": fix.device, "speed": fix.speed}, dict)
        .to("fast")
    )

A function that raises refuses the record, which goes to topic `error`; those behind it go on.
Values are Python objects that msgspec encodes. Where they go through a topic, which is so after
`group_by`, they are decoded as the type that the operator before has named.

`group_by` writes the records to a topic of the topology, in which those of one key are in one
partition; `group_by_key` keeps the key and needs none. What is aggregated is written once a batch
for each key that has changed. After a kill records may come again and count twice, unless the
processing guarantee is `exactly_once_v2`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from consumers.streams.aggregation import (
    Aggregation,
    Aggregator,
    SessionAggregator,
    TimeWindowAggregator,
)
from consumers.streams.built_processor import (
    BuiltProcessor,
    Forward,
    Repartition,
    Sink,
    Source,
    fix_source,
    json_source,
    repartition_source,
)
from consumers.streams.processor import StreamProcessor, Topology
from consumers.streams.windows import SessionWindows, TimeWindows
from waylog.config import ConfigError
from waylog.kafka.topics import KEYED_PARTITIONS, Topic, kept_for
from waylog.messages import Fix

ValueT = TypeVar("ValueT")
OtherT = TypeVar("OtherT")
ResultT = TypeVar("ResultT")

Operation = Callable[[Any], Iterable[Any]]


class BuiltTopology(Topology):
    """What `to` returns: a topology that `waylog streams run --module FILE.py` runs."""

    def __init__(
        self,
        name: str,
        processors: Sequence[BuiltProcessor],
        topics: Sequence[Topic],
        output: str,
    ) -> None:
        self.name = name  # type: ignore[misc]
        self._output = output
        self._processors = tuple(processors)
        self._topics = tuple(topics)

    def processors(self) -> Sequence[StreamProcessor[object]]:
        """Return one for each topic between them, and the last one."""
        return cast("Sequence[StreamProcessor[object]]", self._processors)

    def topics(self) -> Sequence[Topic]:
        """Return the topics between the processors."""
        return self._topics

    def outputs(self) -> Sequence[str]:
        """Return the topic that `to` names."""
        return (self._output,)


@dataclass(frozen=True)
class _Plan:
    """What has been said so far."""

    name: str
    source: Source
    operations: tuple[Operation, ...] = ()
    done: tuple[BuiltProcessor, ...] = ()
    topics: tuple[Topic, ...] = ()

    def then(self, operation: Operation) -> _Plan:
        return replace(self, operations=(*self.operations, operation))

    def processor(self, sink: Sink) -> BuiltProcessor:
        name = self.name if not self.done else f"{self.name}-{len(self.done) + 1}"
        return BuiltProcessor(name, self.source, self.operations, sink)

    def end(self, sink: Sink, output: str) -> BuiltTopology:
        return BuiltTopology(self.name, (*self.done, self.processor(sink)), self.topics, output)


class Stream(Generic[ValueT]):
    """Records one after the other; `stream` begins one."""

    def __init__(self, plan: _Plan, value_type: type[ValueT]) -> None:
        self._plan = plan
        self._type = value_type

    def filter(self, predicate: Callable[[ValueT], object]) -> Stream[ValueT]:
        """Keep the records for whose values the predicate is true."""
        return Stream(
            self._plan.then(lambda value: (value,) if predicate(value) else ()), self._type
        )

    def map(self, function: Callable[[ValueT], OtherT], into: type[OtherT]) -> Stream[OtherT]:
        """Put another value, of type `into`, in place of each; key and time stay."""
        return Stream(self._plan.then(lambda value: (function(value),)), into)

    def flat_map(
        self, function: Callable[[ValueT], Iterable[OtherT]], into: type[OtherT]
    ) -> Stream[OtherT]:
        """Put any number of values, of type `into`, in place of each."""
        return Stream(self._plan.then(function), into)

    def group_by(self, key: Callable[[ValueT], str]) -> GroupedStream[ValueT]:
        """Group the records by another key, through a topic."""
        plan = self._plan
        number = "" if not plan.done else f"-{len(plan.done) + 1}"
        topic = f"streams-{plan.name}{number}-repartition"
        return GroupedStream(
            _Plan(
                plan.name,
                repartition_source(topic, self._type),
                done=(*plan.done, plan.processor(Repartition(topic, key))),
                # As long as the topics that it comes from keep their records.
                topics=(*plan.topics, Topic(topic, KEYED_PARTITIONS, kept_for(7))),
            ),
            self._type,
        )

    def group_by_key(self) -> GroupedStream[ValueT]:
        """Group the records by the key that they have."""
        return GroupedStream(self._plan, self._type)

    def to(self, topic: str) -> BuiltTopology:
        """Write the values to a topic, as JSON."""
        return self._plan.end(Forward(topic), topic)


class GroupedStream(Generic[ValueT]):
    """Records of one key after the other."""

    def __init__(
        self,
        plan: _Plan,
        value_type: type[ValueT],
        windows: TimeWindows | SessionWindows | None = None,
    ) -> None:
        self._plan = plan
        self._type = value_type
        self._windows = windows

    def windowed_by(self, windows: TimeWindows | SessionWindows) -> GroupedStream[ValueT]:
        """Aggregate the records of each window apart.

        The values that are written are objects with `key`, `start`, `end` (ms) and `value`. A
        session that has become part of a larger one is written once more with the value null.
        """
        return GroupedStream(self._plan, self._type, windows)

    def aggregate(
        self,
        initial: Callable[[], ResultT],
        add: Callable[[ResultT, ValueT], ResultT],
        into: type[ResultT],
        *,
        merge: Callable[[ResultT, ResultT], ResultT] | None = None,
    ) -> Table[ResultT]:
        """Add each value to what its key has so far, of type `into`.

        `merge` joins two results; session windows need it. Raises ConfigError without.
        """
        if isinstance(self._windows, SessionWindows) and merge is None:
            raise ConfigError(
                f"topology {self._plan.name}: sessions need aggregate(..., merge=...)"
            )
        return self._table(Aggregation(initial, add, merge, into))

    def reduce(self, function: Callable[[ValueT, ValueT], ValueT]) -> Table[ValueT]:
        """Make one value of what a key has so far and the next one; the first stays as it is."""

        def add(so_far: ValueT | None, value: ValueT) -> ValueT:
            return value if so_far is None else function(so_far, value)

        return self._table(Aggregation(lambda: None, add, function, self._type))

    def count(self) -> Table[int]:
        """Count the records."""
        return self._table(
            Aggregation(int, lambda so_far, _: so_far + 1, lambda one, other: one + other, int)
        )

    def _table(self, aggregation: Aggregation) -> Table[Any]:
        aggregator: Aggregator
        if self._windows is None:
            aggregator = Aggregator(aggregation)
        elif isinstance(self._windows, TimeWindows):
            aggregator = TimeWindowAggregator(aggregation, self._windows)
        else:
            aggregator = SessionAggregator(aggregation, self._windows)
        return Table(self._plan, aggregator)


class Table(Generic[ResultT]):
    """The newest result of each key."""

    def __init__(self, plan: _Plan, aggregator: Aggregator) -> None:
        self._plan = plan
        self._aggregator = aggregator

    def to(self, topic: str) -> BuiltTopology:
        """Write each result that has changed to a topic, as JSON, with its key."""
        self._aggregator.topic = topic
        return self._plan.end(self._aggregator, topic)


def stream(
    name: str,
    topic: str,
    value_type: type[ValueT],
    *,
    time: Callable[[ValueT], int] | None = None,
) -> Stream[ValueT]:
    """Begin a topology with the records of a topic, as JSON of a type.

    `time` tells when a value was, in ms since 1970; without it that is when it came, and for fixes
    `waylog.messages.live_time`. Of type Fix are only those fixes that any consumer of ours takes.
    """
    if value_type is Fix and time is None:
        source = fix_source(topic)
    else:
        source = json_source(topic, value_type, time)
    return Stream(_Plan(name, source), value_type)
