"""The interface of topologies: what `waylog streams run NAME` runs.

A topology is one or several stream processors. A processor reads one topic, keeps values by key in
a store for each partition, and forwards records to other topics. Several processors of a topology
hand records on through topics of their own, keyed anew, as Kafka Streams does between its
sub-topologies. Most topologies are a single processor, so a StreamProcessor is a Topology itself.

The worker calls all of a processor in one thread, with the records of a partition in log order. It
writes what was forwarded, then the changes of the stores, and then commits the offsets. So after a
kill records may come again to a store that knows them already; with the processing guarantee
`exactly_once_v2` all three happen together or not at all.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Generic

import msgspec

from consumers.streams.properties import Properties
from consumers.streams.store import RECORD_BYTES_MAX, Store, ValueT
from consumers.worker.fix_records import passed_on, rejected_record
from consumers.worker.records import InputRecord, OutputRecord
from waylog.kafka.record_headers import headers_of
from waylog.kafka.topics import LOCATION, Topic
from waylog.messages import CLOCK_AHEAD_MS

#: Why a record is refused whose time is later than Context.latest.
FUTURE: Final = "its time is ahead of this machine's clock"


class RecordTooLarge(ValueError):
    """A record that was to be forwarded is larger than a topic may take."""


class Context:
    """What a processor does while it works on records: forward others, refuse some."""

    def __init__(self, source: str, now_ms: int) -> None:
        self._source = source
        #: The wall clock's time at the begin of the batch, in ms since 1970.
        self.now_ms: Final = now_ms
        #: The latest time that an event may have, in ms since 1970. What claims to be from the
        #: future would make all that comes after it late.
        self.latest: Final = now_ms + CLOCK_AHEAD_MS
        #: What was forwarded and refused, in order.
        self.outputs: Final[list[OutputRecord]] = []
        self.refused = 0

    def forward(
        self, topic: str, key: str, value: bytes, record: InputRecord | None = None
    ) -> None:
        """Write a record to a topic, into the partition of its key.

        It inherits the header `traceparent` of `record`. Raises RecordTooLarge.
        """
        name = key.encode()
        if len(name) + len(value) > RECORD_BYTES_MAX:
            raise RecordTooLarge(f"a result of {len(value)} bytes is larger than a record may be")
        headers = None if record is None else passed_on(headers_of(record))
        self.outputs.append(OutputRecord(topic, None, name, value, headers))

    def refuse(self, record: InputRecord, reason: str) -> None:
        """Keep a record that cannot be processed in topic `error`; those behind it go on."""
        self.refused += 1
        self.outputs.append(rejected_record(record, reason, self._source, self.now_ms))


class Topology(ABC):
    """What has a name in `waylog streams list`. It is made with the properties of the command."""

    #: A processor's consumer group is `streams-<name>`; so begin the names of its own topics.
    name: ClassVar[str]
    #: Its line in `waylog streams list`.
    summary: ClassVar[str] = ""

    @abstractmethod
    def processors(self) -> Sequence[StreamProcessor[object]]:
        """Return the processors; a worker runs each of them."""

    def topics(self) -> Sequence[Topic]:
        """Return the topics that it reads or writes beside the platform's; they are created."""
        return ()

    def outputs(self) -> Sequence[str]:
        """Return topics that it writes and that have to exist when it starts."""
        return ()

    def messages(self) -> Mapping[str, type[msgspec.Struct]]:
        """Return the classes of what it writes, by topic, for schemas that are made from them."""
        return {}


class StreamProcessor(Topology, Generic[ValueT]):
    """Turns records of one topic into records of others, with the help of a store."""

    #: The topic that is read.
    topic: str = LOCATION
    #: The type of the store's values. It may get new members with defaults, like messages.
    value_type: type[ValueT]

    def __init__(self, properties: Properties) -> None:
        """Take the properties; raises ConfigError."""

    def processors(self) -> Sequence[StreamProcessor[object]]:
        """Return this one."""
        return (self,)  # type: ignore[return-value]

    def start(self, bootstrap_servers: str, stopping: threading.Event) -> None:
        """Wait for what is needed before the first record, such as a GlobalTable.

        Raises LogUnreachable.
        """

    def close(self) -> None:
        """End what `start` began."""

    @abstractmethod
    def process(
        self, records: Sequence[InputRecord], store: Store[ValueT], context: Context
    ) -> None:
        """Process records of one partition, in log order. Must not raise on bad records."""

    def punctuate(self, store: Store[ValueT], context: Context) -> None:
        """Do what time makes due in one partition, about once a second of the wall clock.

        What depends on the time of events compares `store.stream_time`, which `process` advances.
        """

    def erase(self, erasures: Mapping[str, int], store: Store[ValueT]) -> None:
        """Forget what a store knows of erased devices; has their times, in ms since 1970.

        Deletes a key that is a device, or whose first line is one, unless the value has a member
        `time` (of its newest fix, ms) that is later. A processor that keeps devices inside of
        values has more to do. Called with all erasures for a store that has been restored.
        """
        erased = []
        for key, value in store.items():
            before = erasures.get(key.partition("\n")[0])
            if before is not None and getattr(value, "time", before) <= before:
                erased.append(key)
        for key in erased:
            store.delete(key)


def application_id(processor: StreamProcessor[object]) -> str:
    """Return the name of a processor's group, and the beginning of its topics' names."""
    return f"streams-{processor.name}"


def changelog_topic(application: str) -> str:
    """Return the topic that keeps a processor's stores."""
    return f"{application}-changelog"
