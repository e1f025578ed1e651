"""Copies of topics without a broker, with a real registry."""

from __future__ import annotations

from consumers.streams.convert.topology import Convert, Copying
from consumers.streams.properties import Properties
from consumers.streams.store import Store
from consumers.streams.stream_task import StreamTask
from consumers.worker.records import OutputRecord
from tests.consumers.streams.harness import NOW, Record


class Copies:
    """Makes copies that end with the test."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._made: list[Copying] = []

    def __call__(self, source: str, target: str, **more: str) -> StreamTask[int]:
        texts = {"from": source, "to": target, "schema.registry.url": self.url}
        properties = Properties(texts | {name.replace("_", "."): more[name] for name in more})
        (processor,) = Convert(properties).processors()
        assert isinstance(processor, Copying)
        self._made.append(processor)
        properties.check_all_known("convert")
        assert processor.name == f"convert-{target}"
        return StreamTask(processor, "changelog")

    def close(self) -> None:
        for each in self._made:
            each.close()


def copied(task: StreamTask[int], *records: Record) -> list[OutputRecord]:
    return task.process({0: records}, {0: Store(int)}, NOW)
