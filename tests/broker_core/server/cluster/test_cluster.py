from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from broker_core import errors
from broker_core.cluster.image import ClusterImage, PartitionImage
from broker_core.protocol.definitions import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    METADATA,
)
from broker_core.server.metrics import renderer
from broker_core.server.runtime import Broker
from tests.broker_core.server.cluster.conftest import TIMEOUT_S, StartTrio, Trio
from tests.broker_core.server.raw_client import RawClient

Connect = Callable[[Broker], Awaitable[RawClient]]
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET = 0


def image(broker: Broker) -> ClusterImage:
    assert broker.cluster is not None
    return broker.cluster.image


def partitions(broker: Broker, topic: str) -> list[PartitionImage]:
    return image(broker).topics[topic].partitions


async def create(client: RawClient, name: str, count: int, factor: int = 3) -> dict[str, Any]:
    answer = await client.call(
        CREATE_TOPICS,
        7,
        {
            "topics": [
                {
                    "name": name,
                    "num_partitions": count,
                    "replication_factor": factor,
                    "assignments": [],
                    "configs": [],
                }
            ],
            "timeout_ms": 60_000,
        },
    )
    result: dict[str, Any] = answer["topics"][0]
    return result


async def test_a_topic_created_through_any_broker_is_on_all(trio: Trio, connect: Connect) -> None:
    for number, broker in enumerate(trio.brokers.values()):
        client = await connect(broker)
        result = await create(client, f"t{number}", 6)
        assert result["error_code"] == errors.NONE, result["error_message"]
        assert (result["num_partitions"], result["replication_factor"]) == (6, 3)
    await trio.until(lambda broker: {"t0", "t1", "t2"} <= image(broker).topics.keys())
    described = [
        await (await connect(broker)).call(METADATA, 12, {"topics": None})
        for broker in trio.brokers.values()
    ]
    for answer in described:
        assert sorted(each["node_id"] for each in answer["brokers"]) == [1, 2, 3]
        assert [each["port"] for each in sorted(answer["brokers"], key=lambda b: b["node_id"])] == [
            trio.ports[node_id] for node_id in (1, 2, 3)
        ]
        for topic in answer["topics"]:
            for each in topic["partitions"]:
                assert sorted(each["replica_nodes"]) == sorted(each["isr_nodes"]) == [1, 2, 3]
                assert each["leader_id"] == each["replica_nodes"][0]
    assert described[0]["topics"] == described[1]["topics"] == described[2]["topics"]
    leaders = [each["leader_id"] for each in described[0]["topics"][0]["partitions"]]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]


async def test_what_cannot_be_created_is_refused_with_the_reason(
    trio: Trio, connect: Connect
) -> None:
    client = await connect(trio.brokers[1])
    assert (await create(client, "t", 1, 4))["error_code"] == errors.InvalidReplicationFactor.code
    assert (await create(client, "t", 0))["error_code"] == errors.InvalidPartitions.code
    assert (await create(client, "a/b", 1))["error_code"] == errors.InvalidTopic.code
    assert (await create(client, "t", 1))["error_code"] == errors.NONE
    assert (await create(client, "t", 1))["error_code"] == errors.TopicAlreadyExists.code


async def test_partitions_are_added_and_topics_deleted_everywhere(
    trio: Trio, connect: Connect
) -> None:
    client = await connect(trio.brokers[1])
    await create(client, "t", 1)
    body = {"topics": [{"name": "t", "count": 4, "assignments": None}], "timeout_ms": 60_000}
    grown = await client.call(CREATE_PARTITIONS, 3, body)
    assert grown["results"][0]["error_code"] == errors.NONE
    await trio.until(lambda broker: len(partitions(broker, "t")) == 4)
    await trio.until(lambda broker: broker.topics.partition("t", 3) is not None)
    deleted = await client.call(
        DELETE_TOPICS, 6, {"topics": [{"name": "t", "topic_id": bytes(16)}], "timeout_ms": 60_000}
    )
    assert deleted["responses"][0]["error_code"] == errors.NONE
    await trio.until(lambda broker: "t" not in image(broker).topics and "t" not in broker.topics)


async def test_leaders_move_when_a_broker_shuts_down_and_it_joins_again(
    trio: Trio, connect: Connect
) -> None:
    await create(await connect(trio.brokers[1]), "t", 6)
    await trio.until(lambda broker: "t" in image(broker).topics)
    for node_id in (3, 1, 2):
        await trio.stop(node_id)
        await trio.until(
            lambda broker, gone=node_id: all(  # type: ignore[misc]
                each.leader not in {gone, -1} and gone not in each.isr
                for each in partitions(broker, "t")
            )
        )
        await trio.start(node_id)
        await trio.until(lambda broker: all(len(each.isr) == 3 for each in partitions(broker, "t")))
    epochs = [each.leader_epoch for each in partitions(trio.brokers[1], "t")]
    assert all(epoch >= 1 for epoch in epochs)


async def test_the_cluster_comes_back_as_it_was(trio: Trio, connect: Connect) -> None:
    await create(await connect(trio.brokers[2]), "t", 3)
    await trio.until(lambda broker: "t" in image(broker).topics)
    before = image(trio.brokers[1])
    topic_id, cluster_id = before.topics["t"].id, before.cluster_id
    await trio.stop(1, 2, 3)
    await trio.start()
    for broker in trio.brokers.values():
        assert image(broker).topics["t"].id == topic_id
        assert broker.cluster_id == cluster_id
        assert broker.topics.partition("t", 2) is not None
    await trio.until(lambda broker: all(each.leader > 0 for each in partitions(broker, "t")))


async def test_settings_set_through_any_broker_hold_on_all(trio: Trio, connect: Connect) -> None:
    client = await connect(trio.brokers[1])
    await create(client, "t", 1)
    for broker in trio.brokers.values():
        answer = await (await connect(broker)).call(
            INCREMENTAL_ALTER_CONFIGS,
            1,
            {
                "resources": [
                    {
                        "resource_type": kind,
                        "resource_name": name,
                        "configs": [{"name": key, "config_operation": SET, "value": value}],
                    }
                    for kind, name, key, value in (
                        (TOPIC_RESOURCE, "t", "retention.ms", str(broker.node_id)),
                        (BROKER_RESOURCE, "", "max.connections", str(500 + broker.node_id)),
                        (BROKER_RESOURCE, "2", "max.connections.per.ip", "77"),
                    )
                ],
                "validate_only": False,
            },
        )
        assert [each["error_code"] for each in answer["responses"]] == [0, 0, 0]
        last = broker.node_id
    await trio.until(lambda broker: broker.network.limits.connections_max == 500 + last)
    for broker in trio.brokers.values():
        topic = broker.topics.get("t")
        assert topic is not None
        assert topic.overrides == {"retention.ms": str(last)}
        per_ip = 77 if broker.node_id == 2 else 2**31 - 1
        assert broker.network.limits.connections_per_ip_max == per_ip
        described = await (await connect(broker)).call(
            DESCRIBE_CONFIGS,
            4,
            {
                "resources": [
                    {
                        "resource_type": TOPIC_RESOURCE,
                        "resource_name": "t",
                        "configuration_keys": ["retention.ms"],
                    }
                ],
                "include_synonyms": False,
                "include_documentation": False,
            },
        )
        assert described["results"][0]["configs"][0]["value"] == str(last)


async def new_producer_id(client: RawClient) -> int:
    body = {"transactional_id": None, "transaction_timeout_ms": 1000}
    while True:
        answer = await client.call(INIT_PRODUCER_ID, 4, body)
        if answer["error_code"] == errors.NONE:
            return int(answer["producer_id"])
        assert answer["error_code"] == errors.CoordinatorLoadInProgress.code


async def test_no_producer_id_is_given_twice(trio: Trio, connect: Connect) -> None:
    clients = [await connect(broker) for broker in trio.brokers.values()]
    given = [await new_producer_id(client) for _ in range(20) for client in clients]
    assert min(given) >= 0
    assert len(set(given)) == len(given)


async def test_all_brokers_name_the_same_coordinator(trio: Trio, connect: Connect) -> None:
    found: dict[int, int] = {}
    for broker in trio.brokers.values():
        client = await connect(broker)
        while True:
            answer = await client.call(
                FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["group"]}
            )
            (coordinator,) = answer["coordinators"]
            if coordinator["error_code"] == errors.NONE:
                break
            assert coordinator["error_code"] == errors.CoordinatorNotAvailable.code
        found[broker.node_id] = coordinator["node_id"]
    assert len(set(found.values())) == 1
    await trio.until(lambda broker: "__consumer_offsets" in image(broker).topics)
    for each in partitions(trio.brokers[1], "__consumer_offsets"):
        assert len(each.replicas) == 3


async def test_metrics_tell_of_the_cluster(start_trio: StartTrio, connect: Connect) -> None:
    trio = await start_trio(metrics_listener="127.0.0.1:0")
    await create(await connect(trio.brokers[1]), "t", 4)
    await trio.until(lambda broker: "t" in image(broker).topics)
    active = 0
    for broker in trio.brokers.values():
        text = (await renderer(broker)())[1].decode()
        assert "waylog_broker_offline_partitions 0.0" in text
        assert "waylog_broker_fenced_brokers 0.0" in text
        active += "waylog_broker_active_controller 1.0" in text
    assert active == 1


async def test_describe_cluster_names_all_brokers(start_trio: StartTrio, connect: Connect) -> None:
    trio = await start_trio(broker_rack="here")
    for broker in trio.brokers.values():
        client = await connect(broker)
        answer = await client.call(
            DESCRIBE_CLUSTER,
            1,
            {"include_cluster_authorized_operations": False, "endpoint_type": 1},
        )
        assert sorted(each["broker_id"] for each in answer["brokers"]) == [1, 2, 3]
        assert {each["rack"] for each in answer["brokers"]} == {"here"}
        assert answer["controller_id"] == trio.active
        assert answer["cluster_id"] == broker.cluster_id


async def test_the_controller_that_clients_are_told_of_is_one_of_the_brokers_they_are_told_of(
    start_trio: StartTrio, connect: Connect
) -> None:
    """librdkafka waits for a controller that it was not told of until its request times out."""
    trio = await start_trio(controller_quorum_fetch_timeout_ms="2000")
    asked_id, *others = trio.brokers
    asked = trio.brokers[asked_id]
    assert asked.cluster is not None
    client = await connect(asked)
    assert await _controller(client) == trio.active
    await trio.stop(*others)
    # Nobody can be elected.
    async with asyncio.timeout(TIMEOUT_S):
        while asked.cluster.controller_id != -1:
            await asyncio.sleep(0.02)
    assert await _controller(client) in {asked_id, *others}


async def _controller(client: RawClient) -> int:
    answer = await client.call(METADATA, 12, {"topics": []})
    controller: int = answer["controller_id"]
    assert controller in {each["node_id"] for each in answer["brokers"]}
    body = {"include_cluster_authorized_operations": False, "endpoint_type": 1}
    answer = await client.call(DESCRIBE_CLUSTER, 1, body)
    assert answer["controller_id"] in {each["broker_id"] for each in answer["brokers"]}
    return controller


async def test_clients_are_told_of_a_broker_until_a_moment_after_it_has_gone(
    trio: Trio, connect: Connect
) -> None:
    """librdkafka drops a broker that is no longer named before it looks for new leaders."""
    asked = trio.brokers[trio.active]
    assert asked.cluster is not None
    asked.cluster.farewell_s = 3600.0
    client = await connect(asked)
    stopped = next(node for node in trio.brokers if node != trio.active)

    async def named() -> set[int]:
        answer = await client.call(METADATA, 12, {"topics": []})
        return {each["node_id"] for each in answer["brokers"]}

    assert await named() == {1, 2, 3}
    await trio.stop(stopped)
    await trio.until(lambda broker: image(broker).brokers[stopped].fenced)
    assert await named() == {1, 2, 3}
    asked.cluster.farewell_s = 0.5
    async with asyncio.timeout(TIMEOUT_S):
        while stopped in await named():
            await asyncio.sleep(0.02)
    await trio.start(stopped)
    assert await named() == {1, 2, 3}
