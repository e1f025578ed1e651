from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from broker_core import errors
from broker_core.protocol.definitions import (
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    CREATE_TOPICS,
    DESCRIBE_QUORUM,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
)
from broker_core.server.runtime import Broker
from tests.broker_core.server.cluster.conftest import StartTrio, Trio
from tests.broker_core.server.cluster.test_cluster import create, image, partitions
from tests.broker_core.server.raw_client import RawClient

Connect = Callable[[Broker], Awaitable[RawClient]]
PREFERRED, UNCLEAN = 0, 1


async def create_on(client: RawClient, name: str, *replicas: list[int]) -> None:
    answer = await client.call(
        CREATE_TOPICS,
        7,
        {
            "topics": [
                {
                    "name": name,
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": [
                        {"partition_index": index, "broker_ids": each}
                        for index, each in enumerate(replicas)
                    ],
                    "configs": [],
                }
            ]
        },
    )
    assert answer["topics"][0]["error_code"] == errors.NONE, answer["topics"][0]["error_message"]


async def elect(client: RawClient, kind: int, *places: tuple[str, int]) -> list[int]:
    asked = [{"topic": topic, "partitions": [index]} for topic, index in places]
    answer = await client.call(
        ELECT_LEADERS, 2, {"election_type": kind, "topic_partitions": asked or None}
    )
    return [
        each["error_code"]
        for topic in answer["replica_election_results"]
        for each in topic["partition_result"]
    ]


async def reassign(client: RawClient, topic: str, index: int, replicas: list[int] | None) -> int:
    answer = await client.call(
        ALTER_PARTITION_REASSIGNMENTS,
        1,
        {
            "topics": [
                {"name": topic, "partitions": [{"partition_index": index, "replicas": replicas}]}
            ]
        },
    )
    return int(answer["responses"][0]["partitions"][0]["error_code"])


async def test_leadership_goes_back_to_the_preferred_replica(trio: Trio, connect: Connect) -> None:
    client = await connect(trio.brokers[1])
    await create_on(client, "t", [3, 1, 2], [1, 3, 2])
    await trio.stop(3)
    await trio.until(lambda broker: partitions(broker, "t")[0].leader in {1, 2})
    assert await elect(client, PREFERRED, ("t", 0)) == [errors.PreferredLeaderNotAvailable.code]
    await trio.start(3)
    await trio.until(lambda broker: all(len(each.isr) == 3 for each in partitions(broker, "t")))
    assert await elect(client, PREFERRED, ("t", 0), ("t", 1), ("t", 9)) == [
        errors.NONE,
        errors.ElectionNotNeeded.code,
        errors.UnknownTopicOrPartition.code,
    ]
    await trio.until(lambda broker: partitions(broker, "t")[0].leader == 3)
    assert await elect(client, PREFERRED) == []


async def test_a_lost_isr_is_given_up_only_when_somebody_says_so(
    start_trio: StartTrio, connect: Connect
) -> None:
    trio = await start_trio()
    client = await connect(trio.brokers[1])
    await create_on(client, "t", [3, 1])
    await trio.stop(1)
    client = await connect(trio.brokers[2])
    await trio.until(lambda broker: partitions(broker, "t")[0].isr == (3,))
    await trio.stop(3)
    await trio.start(1)
    await trio.until(lambda broker: not image(broker).brokers[1].fenced)
    assert partitions(trio.brokers[2], "t")[0].leader == -1
    assert await elect(client, UNCLEAN, ("t", 0)) == [errors.NONE]
    await trio.until(lambda broker: partitions(broker, "t")[0].leader == 1)
    assert partitions(trio.brokers[2], "t")[0].isr == (1,)


async def test_replicas_move_to_other_brokers(trio: Trio, connect: Connect) -> None:
    client = await connect(trio.brokers[2])
    await create_on(client, "t", [1], [2])
    assert await reassign(client, "t", 0, [3]) == errors.NONE
    assert await reassign(client, "t", 1, [3, 2]) == errors.NONE
    await trio.until(
        lambda broker: [each.replicas for each in partitions(broker, "t")] == [(3,), (3, 2)]
    )
    await trio.until(lambda broker: partitions(broker, "t")[0].leader == 3)
    await trio.until(
        lambda broker: (broker.topics.partition("t", 0) is not None) == (broker.node_id == 3)
    )
    assert await reassign(client, "t", 0, [7]) == errors.InvalidReplicaAssignment.code
    assert await reassign(client, "t", 0, None) == errors.NoReassignmentInProgress.code


async def test_a_move_that_cannot_end_is_listed_and_can_be_taken_back(
    trio: Trio, connect: Connect
) -> None:
    client = await connect(trio.brokers[1])
    await create_on(client, "t", [1, 2])
    await trio.stop(3)
    assert await reassign(client, "t", 0, [1, 3]) == errors.NONE
    answer: dict[str, Any] = await client.call(LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None})
    (topic,) = answer["topics"]
    (moving,) = topic["partitions"]
    assert (moving["adding_replicas"], moving["removing_replicas"]) == ([3], [2])
    assert await reassign(client, "t", 0, None) == errors.NONE
    await trio.until(lambda broker: partitions(broker, "t")[0].replicas == (1, 2))
    answer = await client.call(LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None})
    assert answer["topics"] == []


async def test_the_quorum_describes_itself_through_any_broker(trio: Trio, connect: Connect) -> None:
    body = {
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    }
    for broker in trio.brokers.values():
        client = await connect(broker)
        await create(client, f"t{broker.node_id}", 1)
        answer = await client.call(DESCRIBE_QUORUM, 2, body)
        described = answer["topics"][0]["partitions"][0]
        assert described["leader_id"] == trio.active
        assert described["high_watermark"] > 0
        voters = {each["replica_id"]: each for each in described["current_voters"]}
        assert voters.keys() == {1, 2, 3}
        assert sorted(each["log_end_offset"] for each in voters.values())[1] > 0
        assert [each["node_id"] for each in answer["nodes"]] == [1, 2, 3]


async def test_who_asks_a_broker_to_move_a_replica_of_another_one_is_told_so(
    trio: Trio, connect: Connect
) -> None:
    clients = {node: await connect(trio.brokers[node]) for node in (1, 2)}
    await create_on(clients[1], "t", [1])
    await trio.until(lambda broker: "t" in image(broker).topics)
    codes = {}
    for node, client in clients.items():
        directory = str(trio.brokers[node].config.log_dir.absolute())
        asked = [{"name": "t", "partitions": [0, 1]}, {"name": "nosuch", "partitions": [0]}]
        dirs = [{"path": directory, "topics": asked}, {"path": "/elsewhere", "topics": asked[:1]}]
        answer = await client.call(ALTER_REPLICA_LOG_DIRS, 1, {"dirs": dirs})
        codes[node] = {
            each["topic_name"]: [part["error_code"] for part in each["partitions"]]
            for each in answer["results"]
        }
    unknown, nowhere = errors.UnknownTopicOrPartition.code, errors.LogDirNotFound.code
    here, other = errors.NONE, errors.ReplicaNotAvailable.code
    assert codes == {
        1: {"t": [here, unknown, nowhere, nowhere], "nosuch": [unknown]},
        2: {"t": [other, unknown, nowhere, nowhere], "nosuch": [unknown]},
    }
