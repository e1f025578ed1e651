"""Connectors that do what their properties say, good or bad; the worker loads them as a plugin."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from consumers.connect.configuration.definitions import ConfigDef
from consumers.connect.data.exceptions import ConnectException, RetriableException
from consumers.connect.data.records import SinkRecord, SourceRecord
from consumers.connect.plugins.connector import SinkConnector, SourceConnector
from consumers.connect.plugins.sink_task import SinkTask, TopicPartition
from consumers.connect.plugins.source_task import RecordMetadata, SourceTask


class _Base:
    """Notes what it is told in the file `notes`, and raises what `fails` names."""

    properties: Mapping[str, str]

    def note(self, text: str) -> None:
        with Path(self.properties["notes"]).open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def maybe_fail(self, where: str) -> None:
        """Fail as the properties say, as long as the file `broken` is there."""
        if self.properties.get("fails") != where or not Path(self.properties["broken"]).exists():
            return
        kind = self.properties.get("kind", "ValueError")
        if kind == "SystemExit":
            raise SystemExit(3)
        if kind == "retriable":
            with Path(self.properties["notes"] + ".attempts").open("a", encoding="utf-8") as file:
                file.write(f"{where}\n")
            raise RetriableException("not now")
        if kind == "hang":
            self.note("hangs")
            time.sleep(3600)
        if kind == "wait":
            self.note("waits")
            while Path(self.properties["broken"]).exists():
                time.sleep(0.02)
            return
        raise ValueError(f"{where} is broken")


class MisbehavingSinkTask(SinkTask, _Base):
    def start(self, properties: Mapping[str, str]) -> None:
        self.properties = properties
        self.maybe_fail("start")

    def put(self, records: Sequence[SinkRecord]) -> None:
        if self.properties.get("timeout"):
            self.context.timeout(int(self.properties["timeout"]))
        if records:
            self.maybe_fail("put")
        for record in records:
            if record.value == self.properties.get("bad"):
                reporter = self.context.errant_record_reporter()
                assert reporter is not None
                future = reporter.report(record, ConnectException("I cannot take this"))
                if self.properties.get("waits"):
                    future.result(30)
                continue
            self.note(str(record.value))
            if record.value == self.properties.get("rewinds_at"):
                self.properties = {**self.properties, "rewinds_at": ""}
                self.context.offset(TopicPartition(record.topic, record.partition or 0), 0)
            if record.value == "commit":
                self.context.request_commit()

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        self.maybe_fail("pre_commit")
        if self.properties.get("holds_back"):
            return {}
        return offsets

    def stop(self) -> None:
        self.note("stopped")


class MisbehavingSink(SinkConnector, _Base):
    config_def: ClassVar[ConfigDef] = ConfigDef()
    task_class = MisbehavingSinkTask

    def start(self, properties: Mapping[str, str]) -> None:
        self.properties = properties
        self.maybe_fail("connector")

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        self.maybe_fail("task_configs")
        return [self.properties] * int(self.properties.get("tasks", "1"))

    def alter_offsets(
        self, properties: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        raise NotImplementedError


class MisbehavingSourceTask(SourceTask, _Base):
    _sent = 0

    def start(self, properties: Mapping[str, str]) -> None:
        self.properties = properties
        offset = self.context.offset_reader.offset({"counter": 1})
        self._sent = int((offset or {}).get("sent", 0))
        self.note(f"started at {self._sent}")

    def poll(self) -> Sequence[SourceRecord] | None:
        self.maybe_fail("poll")
        if self._sent >= int(self.properties.get("count", "3")):
            time.sleep(0.05)
            return None
        self._sent += 1
        return [
            SourceRecord(
                topic=self.properties["topic"],
                value=str(self._sent),
                source_partition={"counter": 1},
                source_offset={"sent": self._sent},
            )
        ]

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        self.note(f"{record.value} at {metadata.offset if metadata else None}")

    def stop(self) -> None:
        self.note("stopped")


class MisbehavingSource(SourceConnector, _Base):
    config_def: ClassVar[ConfigDef] = ConfigDef()
    task_class = MisbehavingSourceTask

    def start(self, properties: Mapping[str, str]) -> None:
        self.properties = properties

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [self.properties]
