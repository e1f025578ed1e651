"""Requests for the controller that clients send to another broker."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker_core import errors
from broker_core.environment import Environment, SystemClock
from broker_core.protocol.definitions import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
)
from broker_core.server.network.request import Request
from broker_core.server.runtime import Broker
from tests.broker_core.server.cluster.conftest import StartTrio, Trio
from tests.broker_core.server.partitions.test_replica_opener import SlowFolders, until
from tests.broker_core.server.raw_client import RawClient, client_at

Connect = Callable[[Broker], Awaitable[RawClient]]

_CONNECTIONS = 5
_REQUESTS = 400


#: Milliseconds; a test that waits for so long fails.
_FOR_EVER = 1_000_000


def _body(topic: str, partitions: int = 1, factor: int = 1) -> dict[str, Any]:
    one = {
        "name": topic,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [],
        "configs": [],
    }
    return {"topics": [one], "timeout_ms": 1_000, "validate_only": False}


def _grown(topic: str, count: int) -> dict[str, Any]:
    one = {"name": topic, "count": count, "assignments": None}
    return {"topics": [one], "timeout_ms": _FOR_EVER, "validate_only": False}


def _open_partitions(broker: Broker, name: str) -> int:
    topic = broker.topics.get(name)
    return 0 if topic is None else len(topic.partitions)


async def test_thousands_of_requests_keep_those_of_another_address_waiting_for_a_few_only(
    trio: Trio,
) -> None:
    asked = next(node for node in trio.brokers if node != trio.active)
    endpoint = trio.brokers[asked].endpoint
    refused = _body("no name")
    answers = dict.fromkeys(range(_CONNECTIONS), 0)

    async def receive_all(number: int, client: RawClient) -> None:
        for _ in range(_REQUESTS):
            _, answer = await client.receive(CREATE_TOPICS, 5)
            assert answer["topics"][0]["error_code"] == errors.InvalidTopic.code
            answers[number] += 1

    greedy = [await client_at("127.0.0.2", endpoint) for _ in range(_CONNECTIONS)]
    other = await client_at("127.0.0.1", endpoint)
    async with asyncio.TaskGroup() as tasks:
        for number, client in enumerate(greedy):
            for _ in range(_REQUESTS):
                client.send(CREATE_TOPICS, 5, refused)
            tasks.create_task(receive_all(number, client))
        # The broker reads faster than the controller answers.
        while not all(answers.values()):
            await asyncio.sleep(0)
        before = sum(answers.values())
        await other.call(CREATE_TOPICS, 5, refused)
        assert sum(answers.values()) - before < 200
    for client in (*greedy, other):
        await client.close()


async def test_a_connection_has_one_request_for_the_controller_at_a_time(trio: Trio) -> None:
    asked = next(node for node in trio.brokers if node != trio.active)
    clients = [
        await client_at("127.0.0.2", trio.brokers[asked].endpoint) for _ in range(_CONNECTIONS)
    ]
    for client in clients:
        for _ in range(_REQUESTS):
            client.send(CREATE_TOPICS, 5, _body("no name"))
    for _ in range(10):
        for client in clients:
            await client.receive(CREATE_TOPICS, 5)
        # In the whole process: those of clients, and what they have become at the controller.
        requests = [each for each in gc.get_objects() if isinstance(each, Request)]
        assert len(requests) < 10 * _CONNECTIONS
        del requests
    for client in clients:
        await client.close()


async def test_what_a_client_has_asked_that_has_gone_is_not_passed_on(trio: Trio) -> None:
    asked = next(node for node in trio.brokers if node != trio.active)
    endpoint = trio.brokers[asked].endpoint
    client = await client_at("127.0.0.1", endpoint)
    for number in range(_REQUESTS):
        client.send(CREATE_TOPICS, 5, _body(f"t{number}"))
    await client.receive(CREATE_TOPICS, 5)
    client.writer.transport.abort()
    other = await client_at("127.0.0.2", endpoint)
    # Parties take turns, so that by now the client that has gone would have had all of its own.
    for number in range(_REQUESTS // 4):
        answer = await other.call(CREATE_TOPICS, 5, _body(f"other{number}"))
        assert answer["topics"][0]["error_code"] == errors.NONE
    await other.close()
    await trio.until(lambda broker: broker.topics.get(f"other{number}") is not None)
    assert trio.brokers[asked].topics.get(f"t{_REQUESTS - 1}") is None


async def test_requests_that_no_controller_answers_are_told_together(
    trio: Trio,
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker_core.server.cluster.forwarding._TIMEOUT_S", 0.5)
    active = trio.active
    alone, other = (node_id for node_id in (1, 2, 3) if node_id != active)
    await trio.stop(other, active)
    await trio.until(lambda broker: not broker.cluster.is_active)
    # More than are under way at a time.
    clients = [await connect(trio.brokers[alone]) for _ in range(20)]
    body = {"topics": [], "timeout_ms": 60_000, "validate_only": False}
    for client in clients:
        client.send(CREATE_PARTITIONS, 3, body)
    assert await asyncio.gather(*(client.is_closed_by_peer() for client in clients)) == [True] * 20
    assert len([each for each in caplog.messages if "no controller answers" in each]) == 1


@pytest.mark.parametrize("version", [4, 5, 7])
async def test_new_partitions_serve_where_they_were_asked_for(trio: Trio, version: int) -> None:
    asked = next(node for node in trio.brokers if node != trio.active)
    broker = trio.brokers[asked]
    client = await client_at("127.0.0.1", broker.endpoint)
    for number in range(10):
        name = f"t{number}"
        body = {**_body(name, 20, 3), "timeout_ms": _FOR_EVER}
        answer = await client.call(CREATE_TOPICS, version, body)
        assert answer["topics"][0]["error_code"] == errors.NONE
        assert _open_partitions(broker, name) == 20
        answer = await client.call(CREATE_PARTITIONS, 3, _grown(name, 40))
        assert answer["results"][0]["error_code"] == errors.NONE
        assert _open_partitions(broker, name) == 40
    await client.close()


@pytest.mark.parametrize("count", [1, 120])
async def test_who_gets_no_new_partitions_does_not_wait_for_them(
    trio: Trio, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr("broker_core.server.cluster.expected_topics._IMAGE_S", _FOR_EVER)
    asked = next(node for node in trio.brokers if node != trio.active)
    client = await client_at("127.0.0.1", trio.brokers[asked].endpoint)
    plans = [_body(f"t{number}")["topics"][0] for number in range(count)]
    bad = [_body(f"no name {number}")["topics"][0] for number in range(count)]
    for topics, validate_only, code in (
        (plans, True, errors.NONE),
        (bad, False, errors.InvalidTopic.code),
    ):
        body = {"topics": topics, "timeout_ms": _FOR_EVER, "validate_only": validate_only}
        answer = await client.call(CREATE_TOPICS, 5, body)
        assert [each["error_code"] for each in answer["topics"]] == [code] * count
    body = {
        "topics": [_grown(f"t{number}", 4)["topics"][0] for number in range(count)],
        "timeout_ms": _FOR_EVER,
        "validate_only": False,
    }
    answer = await client.call(CREATE_PARTITIONS, 3, body)
    unknown = errors.UnknownTopicOrPartition.code
    assert [each["error_code"] for each in answer["results"]] == [unknown] * count
    await client.close()


async def test_who_waits_for_new_partitions_keeps_no_other_client_waiting(
    start_trio: StartTrio,
) -> None:
    disk = SlowFolders()
    trio = await start_trio(Environment(SystemClock(), disk))
    asked = next(node for node in trio.brokers if node != trio.active)
    broker = trio.brokers[asked]
    greedy, other, hasty = [await client_at("127.0.0.1", broker.endpoint) for _ in range(3)]
    try:
        greedy.send(CREATE_TOPICS, 5, {**_body("large", 50, 3), "timeout_ms": _FOR_EVER})
        waiting = asyncio.create_task(greedy.receive(CREATE_TOPICS, 5))
        await until(disk.waits.is_set)
        answer = await other.call(CREATE_TOPICS, 5, _body("small"))
        assert answer["topics"][0]["error_code"] == errors.NONE
        # Nobody waits longer than he wants.
        for timeout_ms in (-1, 0, 50):
            body = {**_body(f"u{timeout_ms}", 50, 3), "timeout_ms": timeout_ms}
            answer = await hasty.call(CREATE_TOPICS, 5, body)
            assert answer["topics"][0]["error_code"] == errors.NONE
        assert not waiting.done()
    finally:
        disk.may_go_on.set()
    _, answer = await waiting
    assert answer["topics"][0]["error_code"] == errors.NONE
    assert _open_partitions(broker, "large") == 50
    for client in (greedy, other, hasty):
        await client.close()


async def test_many_topics_serve_where_they_were_asked_for(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_core.server.cluster.expected_topics._IMAGE_S", _FOR_EVER)
    asked = next(node for node in trio.brokers if node != trio.active)
    broker = trio.brokers[asked]
    client = await client_at("127.0.0.1", broker.endpoint)
    names = [f"t{number}" for number in range(120)]
    body = {
        **_body("t"),
        "topics": [_body(name, 3, 3)["topics"][0] for name in names],
        "timeout_ms": _FOR_EVER,
    }
    answer = await client.call(CREATE_TOPICS, 5, body)
    assert [each["name"] for each in answer["topics"]] == names
    assert {each["error_code"] for each in answer["topics"]} == {errors.NONE}
    assert {_open_partitions(broker, name) for name in names} == {3}
    # What comes behind it is read again.
    answer = await client.call(CREATE_TOPICS, 5, _body("one"))
    assert answer["topics"][0]["error_code"] == errors.NONE
    await client.close()


async def test_who_waits_for_what_never_comes_goes_on(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Somebody may delete a topic before this broker hears of it at all.
    monkeypatch.setattr("broker_core.server.cluster.expected_topics._IMAGE_S", 0.01)
    gone_on: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    trio.brokers[1].when_known({"never": 1}, _FOR_EVER, lambda: gone_on.set_result(None))
    async with asyncio.timeout(60):
        await gone_on


async def test_a_topic_that_is_named_twice_is_not_waited_for(trio: Trio) -> None:
    asked = next(node for node in trio.brokers if node != trio.active)
    client = await client_at("127.0.0.1", trio.brokers[asked].endpoint)
    body = {**_body("t"), "timeout_ms": _FOR_EVER}
    assert (await client.call(CREATE_TOPICS, 5, body))["topics"][0]["error_code"] == errors.NONE
    topics = [{"name": "t", "count": count, "assignments": None} for count in (2, 3)]
    grow = {**_grown("t", 2), "topics": topics}
    answer = await client.call(CREATE_PARTITIONS, 3, grow)
    assert [each["error_code"] for each in answer["results"]] == [errors.InvalidRequest.code]
    await client.close()


async def test_who_changes_too_much_through_another_broker_is_made_to_wait(trio: Trio) -> None:
    asked = next(node for node in trio.brokers if node != trio.active)
    client = await client_at("127.0.0.1", trio.brokers[asked].endpoint)
    quota = {
        "entity": [{"entity_type": "user", "entity_name": "ANONYMOUS"}],
        "ops": [{"key": "controller_mutation_rate", "value": 10.0, "remove": False}],
    }
    limit = {"entries": [quota], "validate_only": False}
    answer = await client.call(ALTER_CLIENT_QUOTAS, 1, limit)
    assert answer["entries"][0]["error_code"] == errors.NONE
    await trio.until(lambda broker: broker.quotas.active)
    loop = asyncio.get_running_loop()
    throttled_ms = 0
    async with asyncio.timeout(60):
        for number in itertools.count():
            began = loop.time()
            answer = await client.call(CREATE_TOPICS, 5, _body(f"t{number}", 65))
            if throttled_ms := answer["throttle_time_ms"]:
                break
    throttled_ms = min(throttled_ms, 1_000)
    await client.call(API_VERSIONS, 0, {})
    assert loop.time() - began >= throttled_ms / 1000 * 0.9
    await client.close()
