"""Fetch sessions (KIP-227): incremental requests and responses, refusals, eviction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker_core import errors
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import FETCH
from broker_core.server.partitions.fetch_sessions import FetchSessions
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient
from tests.broker_core.server.topics import create_topic

VERSION = 12
Connect = Callable[[Broker], Awaitable[RawClient]]


class Reader:
    """A consumer with a fetch session."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.session_id = 0
        self.epoch = 0

    async def fetch(
        self, *partitions: tuple[int, int], forget: list[int] | None = None, **more: Any
    ) -> dict[str, Any]:
        """Fetch (partition, offset) pairs; return the response."""
        asked = [
            {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            for index, offset in partitions
        ]
        answer = await self.client.call(
            FETCH,
            VERSION,
            {
                "max_wait_ms": 0,
                "min_bytes": 0,
                "max_bytes": 1 << 20,
                "session_id": self.session_id,
                "session_epoch": self.epoch,
                "topics": [{"topic": "t", "partitions": asked}] if asked else [],
                "forgotten_topics_data": [{"topic": "t", "partitions": forget or []}],
            }
            | more,
        )
        if not answer["error_code"]:
            self.session_id = answer["session_id"]
            self.epoch += 1
        return answer


def places(answer: dict[str, Any]) -> list[int]:
    """Return the partitions of a response."""
    return [
        each["partition_index"] for topic in answer["responses"] for each in topic["partitions"]
    ]


@pytest.fixture
async def reader(broker: Broker, connect: Connect) -> Reader:
    """A reader, and a topic with three partitions."""
    create_topic(broker, "t", 3, {})
    return Reader(await connect(broker))


def append(broker: Broker, index: int) -> None:
    """Append one record, visible at once."""
    partition = broker.topics.partition("t", index)
    assert partition is not None
    partition.append(build_batch([(1, b"k", b"v", ())]), 1)
    partition.log.flush()
    partition.advance()


async def test_only_partitions_with_news_are_answered(broker: Broker, reader: Reader) -> None:
    first = await reader.fetch((0, 0), (1, 0), (2, 0))
    assert reader.session_id > 0
    assert places(first) == [0, 1, 2]
    assert places(await reader.fetch()) == []
    append(broker, 1)
    answer = await reader.fetch()
    assert places(answer) == [1]
    assert answer["responses"][0]["partitions"][0]["records"]
    assert places(await reader.fetch((1, 1))) == []


async def test_partitions_are_added_and_forgotten(broker: Broker, reader: Reader) -> None:
    await reader.fetch((0, 0))
    assert places(await reader.fetch((2, 0))) == [2]
    for index in range(3):
        append(broker, index)
    assert places(await reader.fetch(forget=[0])) == [2]


async def test_who_was_read_waits_for_the_others(broker: Broker, reader: Reader) -> None:
    for index in range(3):
        append(broker, index)
    one: dict[str, Any] = {"max_bytes": 1}
    assert places(await reader.fetch((0, 0), (1, 0), (2, 0), **one)) == [0, 1, 2]
    # The offsets in the session do not change: every partition still has its record.
    seen = [places(await reader.fetch(**one)) for _ in range(3)]
    assert sorted(index for answer in seen for index in answer) == [0, 1, 2]


async def test_a_wrong_session_or_epoch_is_refused(reader: Reader) -> None:
    await reader.fetch((0, 0))
    session_id = reader.session_id
    reader.epoch = 5
    assert (await reader.fetch())["error_code"] == errors.InvalidFetchSessionEpoch.code
    reader.session_id, reader.epoch = session_id + 1, 1
    assert (await reader.fetch())["error_code"] == errors.FetchSessionIdNotFound.code
    reader.session_id, reader.epoch = session_id, -1
    assert (await reader.fetch((0, 0)))["session_id"] == 0
    reader.session_id, reader.epoch = session_id, 1
    assert (await reader.fetch())["error_code"] == errors.FetchSessionIdNotFound.code


async def test_an_error_is_told_until_it_is_gone(broker: Broker, reader: Reader) -> None:
    answer = await reader.fetch((0, 7))
    assert answer["responses"][0]["partitions"][0]["error_code"] == errors.OffsetOutOfRange.code
    assert places(await reader.fetch()) == [0]
    assert places(await reader.fetch((0, 0))) == [0]
    assert places(await reader.fetch()) == []


def request(session_id: int, epoch: int, *indexes: int) -> Any:
    """Return the fields of a request that matter for its session."""
    partitions = [{"partition": index} for index in indexes]
    return {
        "session_id": session_id,
        "session_epoch": epoch,
        "topics": [{"topic": "t", "topic_id": bytes(16), "partitions": partitions}],
        "forgotten_topics_data": [],
    }


def test_sessions_are_few_and_young_ones_stay() -> None:
    sessions = FetchSessions(2)
    first, _ = sessions.find(request(0, 0, 1), "me", by_id=False, now_s=0.0)
    assert first is not None
    second, _ = sessions.find(request(0, 0, 1), "me", by_id=False, now_s=100.0)
    assert second is not None
    assert sessions.find(request(0, 0, 1), "me", by_id=False, now_s=110.0) == (None, False)
    third, _ = sessions.find(request(0, 0, 1), "me", by_id=False, now_s=130.0)
    assert third is not None and len(sessions) == 2
    with pytest.raises(errors.FetchSessionIdNotFound):
        sessions.find(request(first.session_id, 1), "me", by_id=False, now_s=131.0)


def test_a_session_is_its_owners() -> None:
    sessions = FetchSessions(2)
    mine, _ = sessions.find(request(0, 0, 1), "me", by_id=False, now_s=0.0)
    assert mine is not None
    with pytest.raises(errors.FetchSessionIdNotFound):
        sessions.find(request(mine.session_id, 1), "you", by_id=False, now_s=1.0)
    sessions.find(request(mine.session_id, -1), "you", by_id=False, now_s=1.0)
    again, is_incremental = sessions.find(request(mine.session_id, 1), "me", by_id=False, now_s=1.0)
    assert again is mine and is_incremental


def test_what_sessions_remember_is_bounded() -> None:
    sessions = FetchSessions(10)
    many = request(0, 0, *range(60_000))
    assert sessions.find(many, "me", by_id=False, now_s=0.0)[0] is not None
    assert sessions.find(many, "me", by_id=False, now_s=0.0)[0] is None
