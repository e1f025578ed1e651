from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker_core.protocol.definitions import API_VERSIONS, FETCH, METADATA
from broker_core.server.network.peer import Peer
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import fetch_body
from tests.broker_core.server.topics import create_topic
from tests.tcp_server import tcp_server
from waylog.config import Endpoint
from waylog.process.background import end_on_failure

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ApiVersionsRequest,
        FetchResponse,
    )

NO_TOPICS: Any = {"topics": []}


async def test_requests_that_are_on_their_way_together_get_their_own_answers(
    broker: Broker,
) -> None:
    peer = Peer(broker.endpoint, "test")
    names = [f"missing-{number}" for number in range(20)]
    client: ApiVersionsRequest = {"client_software_name": "x", "client_software_version": "1"}
    bodies: list[Any] = [{"topics": [{"name": name}]} for name in names]
    versions, answers = await asyncio.gather(
        peer.call(API_VERSIONS, 3, client),
        asyncio.gather(*(peer.call(METADATA, 12, body) for body in bodies)),
    )
    assert versions is not None and versions["error_code"] == 0
    assert [answer and answer["topics"][0]["name"] for answer in answers] == names
    peer.close()


async def test_a_node_that_is_not_there_gives_no_answer() -> None:
    peer = Peer(Endpoint("127.0.0.1", 1), "test")
    assert await peer.call(METADATA, 12, NO_TOPICS) is None
    peer.close()


async def test_a_broken_connection_fails_what_waits_and_the_next_request_opens_another(
    broker: Broker,
) -> None:
    create_topic(broker, "t", 1, {})
    lost = asyncio.Event()
    peer = Peer(broker.endpoint, "test", lost=lost.set)
    waiting: list[FetchResponse | None] = []
    body: Any = fetch_body("t", 0, max_wait_ms=30_000)
    peer.send(FETCH, 12, body, waiting.append)
    async with asyncio.timeout(60):
        while not peer.is_connected:
            await asyncio.sleep(0)
    peer.disconnect()
    async with asyncio.timeout(60):
        await lost.wait()
    assert waiting == [None]
    assert await peer.call(METADATA, 12, NO_TOPICS) is not None
    peer.close()


async def test_who_is_closed_answers_nothing_more(broker: Broker) -> None:
    peer = Peer(broker.endpoint, "test")
    peer.close()
    assert await peer.call(METADATA, 12, NO_TOPICS) is None


async def test_who_does_not_answer_is_asked_on_another_connection(broker: Broker) -> None:
    create_topic(broker, "t", 1, {})
    lost = asyncio.Event()
    peer = Peer(broker.endpoint, "test", lost=lost.set, patience_s=0.05)
    body: Any = fetch_body("t", 0, max_wait_ms=30_000)
    async with asyncio.timeout(60):
        assert await peer.call(FETCH, 12, body) is None
        await lost.wait()
    peer._patience_s = 60.0  # this answer comes, however long this process stands still
    assert await peer.call(METADATA, 12, NO_TOPICS) is not None
    peer.close()


async def test_who_fails_to_take_an_answer_is_told_of_and_no_other_loses_its_own(
    broker: Broker,
) -> None:
    failed: list[Exception] = []
    end_on_failure(asyncio.get_running_loop(), failed.append)
    peer = Peer(broker.endpoint, "test")

    def fail(answer: object) -> None:
        raise ValueError("no answer" if answer is None else "an answer")

    peer.send(METADATA, 12, NO_TOPICS, fail)
    assert await peer.call(METADATA, 12, NO_TOPICS) is not None
    answers: list[object] = []
    for answered in (fail, answers.append):
        peer.send(METADATA, 12, NO_TOPICS, answered)
    peer.close()
    assert answers == [None]
    assert [str(each) for each in failed] == ["an answer", "no answer"]


async def test_who_has_asked_does_not_wait_for_ever_when_the_answer_makes_no_sense() -> None:
    async def garbled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4), "big")
        frame = (await reader.readexactly(size))[4:8] + b"\xff"
        writer.write(len(frame).to_bytes(4, "big") + frame)
        await reader.read()

    async with asyncio.timeout(60), tcp_server(garbled) as port:
        peer = Peer(Endpoint("127.0.0.1", port), "test")
        assert await peer.call(METADATA, 12, NO_TOPICS) is None
        peer.close()
