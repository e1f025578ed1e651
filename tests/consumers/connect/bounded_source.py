"""A source that ends its transactions itself: every third record is the last of one.

It counts up. A transaction whose last number is in the file of aborts is aborted. What it is told
to be in the log is noted in a file.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType
from consumers.connect.configuration.plugins import ExactlyOnceSupport
from consumers.connect.data.records import SourceRecord
from consumers.connect.plugins.connector import SourceConnector
from consumers.connect.plugins.source_task import RecordMetadata, SourceTask

_PARTITION: Final = {"counter": "one"}
_LAST: Final = 30


class BoundedTask(SourceTask):
    """Counts."""

    def start(self, properties: Mapping[str, str]) -> None:
        stored = self.context.offset_reader.offset(_PARTITION) or {}
        self._next = int(stored.get("next", 0))
        self._topic = properties["topic"]
        self._aborts = {int(each) for each in Path(properties["aborts"]).read_text().split()}
        self._told = Path(properties["told"])

    def poll(self) -> Sequence[SourceRecord] | None:
        # So that the log has what came before, also of a transaction that is aborted.
        time.sleep(0.05)
        if self._next >= _LAST:
            return None
        records = []
        # Batches do not end where transactions do.
        for number in range(self._next, min(self._next + 5, _LAST)):
            record = SourceRecord(
                topic=self._topic,
                value=str(number),
                source_partition=_PARTITION,
                source_offset={"next": number + 1},
            )
            records.append(record)
            context = self.context.transaction_context
            assert context is not None
            if number in self._aborts:
                context.abort_transaction(record)
            elif number % 3 == 2:
                context.commit_transaction(record)
        self._next += len(records)
        return records

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        with self._told.open("a") as file:
            file.write(f"{record.value}\n")

    def stop(self) -> None:
        pass


class BoundedSource(SourceConnector):
    """The connector."""

    version = "1.0"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(name="topic", type=ConfigType.STRING),
            ConfigKey(name="aborts", type=ConfigType.STRING),
            ConfigKey(name="told", type=ConfigType.STRING),
        ]
    )
    task_class = BoundedTask

    def start(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [self._properties]

    def exactly_once_support(self, properties: Mapping[str, str]) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.SUPPORTED

    def can_define_transaction_boundaries(self, properties: Mapping[str, str]) -> bool:
        return True
