"""The topic of the schemas, with another registry that writes at the worst moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.schema_registry.changes import Decision
from gateway.schema_registry.metrics import RegistryMetrics
from gateway.schema_registry.records import (
    DeletedSubject,
    SchemaRecord,
    SchemaValue,
    schema_record,
)
from gateway.schema_registry.state import State
from gateway.schema_registry.store import SchemaStore, schemas_topic
from tests.consumers.running import Broker
from waylog.kafka.clients import ensure_topics

TOPIC = "store-schemas"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = Broker(tmp_path_factory.mktemp("broker"))
    ensure_topics(broker.address, [schemas_topic(TOPIC)], replication_factor=1)
    yield broker.address
    broker.process.stop()


def _next(state: State, text: str) -> Decision:
    versions = state.versions("s")
    value = SchemaValue(subject="s", version=len(versions) + 1, id=state.id_max + 1, schema=text)
    return Decision([schema_record(value)], value.version)


async def _change(servers: str, decide: Callable[[State], Decision]) -> Any:
    state = State()
    store = SchemaStore(servers, TOPIC, state, RegistryMetrics(state))
    try:
        await store.start()
        return await store.change(lambda: decide(state))
    finally:
        await store.close()


def test_what_others_wrote_after_the_decision_is_decided_upon_again(servers: str) -> None:
    """The other one begins and ends its change when this one has decided and not yet written."""
    calls: list[int] = []
    answers: list[Any] = []

    def other() -> None:
        answers.append(asyncio.run(_change(servers, lambda state: _next(state, '"int"'))))

    def decide(state: State) -> Decision:
        calls.append(len(state.versions("s")))
        decision = _next(state, '"string"')
        if len(calls) == 1:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join(60)
        return decision

    mine = asyncio.run(_change(servers, decide))
    first, second = calls
    assert second == first + 1, "the second decision knows of the other's version"
    assert (answers, mine) == ([first + 1], second + 1)
    known: list[tuple[int, int, str]] = []

    def look(state: State) -> Decision:
        known.extend((each.version, each.id, each.schema) for each in state.versions("s"))
        return Decision([], None)

    asyncio.run(_change(servers, look))
    assert known[-2:] == [(first + 1, first + 1, '"int"'), (second + 1, second + 1, '"string"')]


def test_a_deleted_subject_keeps_versions_that_came_later() -> None:
    state = State()
    for version in (1, 2, 3):
        value = SchemaValue(subject="s", version=version, id=version, schema='"int"')
        state.apply(SchemaRecord("s", version, value))
    state.apply(DeletedSubject("s", 2))
    assert [each.version for each in state.versions("s")] == [3]
    state.apply(DeletedSubject("s", None))
    assert [each.version for each in state.versions("s")] == [3]
