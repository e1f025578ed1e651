from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from broker_core import errors
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import (
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    FETCH,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from broker_core.protocol.record_reader import iterate_records
from broker_core.server.metrics import renderer
from broker_core.server.partitions.replicated_partition import ReplicatedPartition
from broker_core.server.runtime import Broker
from tests.broker_core.server.cluster.conftest import TIMEOUT_S, StartTrio, Trio
from tests.broker_core.server.cluster.test_cluster import create, image
from tests.broker_core.server.raw_client import RawClient, fetch_body, produce_body
from tests.certificates import Certificates
from waylog.kafka.batch_producer import BatchProducer

Connect = Callable[[Broker], Awaitable[RawClient]]
NOW = 1_700_000_000_000
#: The oldest versions in which fetches may go to followers, and responses name the leaders.
FETCH_VERSION, PRODUCE_VERSION = 12, 10


def replica(broker: Broker, index: int = 0, topic: str = "t") -> ReplicatedPartition:
    partition = broker.topics.partition(topic, index)
    assert isinstance(partition, ReplicatedPartition)
    return partition


def leader_of(trio: Trio, index: int = 0, topic: str = "t") -> Broker:
    return next(broker for broker in trio.brokers.values() if replica(broker, index, topic).is_led)


def follower_of(trio: Trio) -> Broker:
    return next(broker for broker in trio.brokers.values() if not replica(broker).is_led)


def in_sync(broker: Broker, *brokers: int) -> bool:
    partition = image(broker).partition("t", 0)
    return partition is not None and set(partition.isr) == set(brokers)


def log_end(broker: Broker) -> int:
    partition = broker.topics.partition("t", 0)
    return -1 if partition is None else partition.log.log_end_offset


async def make_topic(trio: Trio, connect: Connect, count: int = 1) -> None:
    client = await connect(trio.brokers[1])
    assert (await create(client, "t", count))["error_code"] == errors.NONE
    await trio.until(
        lambda broker: all(
            broker.topics.partition("t", index) is not None
            and replica(broker, index).image.leader >= 0
            for index in range(count)
        )
    )


def batch(*values: str) -> bytes:
    return bytes(build_batch([(NOW, b"k", value.encode(), ()) for value in values]))


async def produce(client: RawClient, records: bytes, **more: Any) -> dict[str, Any]:
    body = produce_body("t", records, acks=more.pop("acks", -1)) | more
    return await client.call(PRODUCE, PRODUCE_VERSION, body)


def result_of(answer: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = answer["responses"][0]["partition_responses"][0]
    return result


async def test_an_acknowledged_record_is_in_all_logs(trio: Trio, connect: Connect) -> None:
    await make_topic(trio, connect)
    client = await connect(leader_of(trio))
    for number in range(5):
        assert result_of(await produce(client, batch(f"{number}")))["base_offset"] == number
        logs = [replica(broker).log for broker in trio.brokers.values()]
        assert [log.log_end_offset for log in logs] == [number + 1] * 3
    assert len({log.read(0, 10_000) for log in logs}) == 1
    await trio.until(lambda broker: replica(broker).high_watermark == 5)


async def test_a_log_of_before_its_topic_was_replaced_is_set_aside(
    trio: Trio, connect: Connect
) -> None:
    await make_topic(trio, connect)
    client = await connect(leader_of(trio))
    assert result_of(await produce(client, batch("old")))["base_offset"] == 0
    await trio.until(lambda broker: replica(broker).high_watermark == 1)
    folder = trio.brokers[3].config.log_dir
    await trio.stop(3)
    client = await connect(trio.brokers[1])
    await client.call(
        DELETE_TOPICS, 6, {"topics": [{"name": "t", "topic_id": bytes(16)}], "timeout_ms": 1000}
    )
    await trio.until(lambda broker: "t" not in broker.topics)
    # The new one is placed on the broker that is away, too.
    placed = {"name": "t", "num_partitions": -1, "replication_factor": -1, "configs": []}
    placed["assignments"] = [{"partition_index": 0, "broker_ids": [1, 2, 3]}]
    asked = {"topics": [placed], "timeout_ms": 10_000, "validate_only": False}
    answer = await client.call(CREATE_TOPICS, 7, asked)
    assert answer["topics"][0]["error_code"] == errors.NONE
    await trio.start(3)
    await trio.until(lambda broker: in_sync(broker, 1, 2, 3))
    new = image(trio.brokers[3]).topics["t"].id
    assert new.hex() in (folder / "t-0" / "partition.metadata").read_text().replace("-", "")
    (stray,) = folder.glob("t-0.*-stray")
    assert b"old" in b"".join(each.read_bytes() for each in stray.glob("*.log"))
    client = await connect(leader_of(trio))
    assert result_of(await produce(client, batch("new")))["base_offset"] == 0
    await trio.until(lambda broker: replica(broker).high_watermark == 1)
    assert len({replica(each).log.read(0, 10_000) for each in trio.brokers.values()}) == 1


@pytest.mark.parametrize("acks", [0, 1])
async def test_who_wants_no_acknowledgement_by_all_gets_its_records_there_too(
    trio: Trio, connect: Connect, acks: int
) -> None:
    await make_topic(trio, connect)
    client = await connect(leader_of(trio))
    if acks:
        assert result_of(await produce(client, batch("x"), acks=acks))["error_code"] == errors.NONE
    else:
        client.send(PRODUCE, PRODUCE_VERSION, produce_body("t", batch("x"), acks=0))
    await trio.until(lambda broker: replica(broker).high_watermark == 1)


async def test_who_does_not_lead_says_who_does(trio: Trio, connect: Connect) -> None:
    await make_topic(trio, connect)
    leader = leader_of(trio)
    client = await connect(follower_of(trio))
    answer = await produce(client, batch("x"))
    result = result_of(answer)
    assert result["error_code"] == errors.NotLeaderOrFollower.code
    assert result["current_leader"] == {"leader_id": leader.node_id, "leader_epoch": 0}
    (endpoint,) = answer["node_endpoints"]
    assert (endpoint["node_id"], endpoint["port"]) == (leader.node_id, leader.endpoint.port)
    listed = await client.call(
        LIST_OFFSETS,
        7,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [
                {"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]},
            ],
        },
    )
    code = listed["topics"][0]["partitions"][0]["error_code"]
    assert code == errors.NotLeaderOrFollower.code


async def test_a_follower_serves_what_is_committed_to_clients_that_know_of_followers(
    trio: Trio, connect: Connect
) -> None:
    await make_topic(trio, connect)
    await produce(await connect(leader_of(trio)), batch("a", "b"))
    follower = follower_of(trio)
    await trio.until(lambda broker: replica(broker).high_watermark == 2)
    client = await connect(follower)
    answer = await client.call(FETCH, FETCH_VERSION, fetch_body("t", 0))
    (found,) = answer["responses"][0]["partitions"]
    assert [record[3] for record in iterate_records(found["records"])] == [b"a", b"b"]
    assert found["high_watermark"] == 2
    answer = await client.call(FETCH, 10, fetch_body("t", 0))
    (found,) = answer["responses"][0]["partitions"]
    assert found["error_code"] == errors.NotLeaderOrFollower.code


async def test_clients_with_another_leader_epoch_are_told_so(trio: Trio, connect: Connect) -> None:
    await make_topic(trio, connect)
    gone = leader_of(trio)
    await produce(await connect(gone), batch("a"))
    await trio.stop(gone.node_id)
    await trio.until(lambda broker: replica(broker).leader_epoch == 1)
    client = await connect(leader_of(trio))
    for epoch, error in ((0, errors.FencedLeaderEpoch), (2, errors.UnknownLeaderEpoch)):
        body = fetch_body("t", 0)
        body["topics"][0]["partitions"][0]["current_leader_epoch"] = epoch
        answer = await client.call(FETCH, FETCH_VERSION, body)
        assert answer["responses"][0]["partitions"][0]["error_code"] == error.code
    await produce(client, batch("b", "c"))
    answer = await client.call(
        OFFSET_FOR_LEADER_EPOCH,
        4,
        {
            "replica_id": -1,
            "topics": [{"topic": "t", "partitions": [{"partition": 0, "leader_epoch": 0}]}],
        },
    )
    (found,) = answer["topics"][0]["partitions"]
    assert (found["error_code"], found["leader_epoch"], found["end_offset"]) == (0, 0, 1)


async def test_records_that_the_leader_deletes_are_deleted_everywhere(
    trio: Trio, connect: Connect
) -> None:
    await make_topic(trio, connect)
    client = await connect(leader_of(trio))
    for number in range(4):
        await produce(client, batch(f"{number}"))
    body = {
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 3}]}],
        "timeout_ms": 5000,
    }
    refused = await (await connect(follower_of(trio))).call(DELETE_RECORDS, 2, body)
    code = refused["topics"][0]["partitions"][0]["error_code"]
    assert code == errors.NotLeaderOrFollower.code
    answer = await client.call(DELETE_RECORDS, 2, body)
    assert answer["topics"][0]["partitions"][0]["low_watermark"] == 3
    await trio.until(lambda broker: replica(broker).log.log_start_offset == 3)


async def test_with_too_few_in_sync_nothing_is_taken(
    start_trio: StartTrio, connect: Connect
) -> None:
    trio = await start_trio(min_insync_replicas="3")
    await make_topic(trio, connect)
    gone = follower_of(trio).node_id
    client = await connect(leader_of(trio))
    assert result_of(await produce(client, batch("a")))["error_code"] == errors.NONE
    await trio.stop(gone)
    await trio.until(lambda broker: not in_sync(broker, 1, 2, 3))
    refused = result_of(await produce(client, batch("b")))
    assert refused["error_code"] == errors.NotEnoughReplicas.code
    _, metrics = await renderer(leader_of(trio))()
    assert b"_under_min_isr_partitions 1.0" in metrics
    assert b"_under_replicated_partitions 1.0" in metrics
    # With acks=1 records are accepted, but become readable only when all replicas are back.
    assert result_of(await produce(client, batch("c"), acks=1))["error_code"] == errors.NONE
    assert replica(leader_of(trio)).high_watermark == 1
    await trio.start(gone)
    await trio.until(lambda broker: in_sync(broker, 1, 2, 3))
    assert result_of(await produce(client, batch("d")))["error_code"] == errors.NONE
    await trio.until(lambda broker: replica(broker).high_watermark == 3)


async def test_a_follower_that_falls_silent_is_waited_for_and_then_left_out(
    start_trio: StartTrio, connect: Connect
) -> None:
    trio = await start_trio(replica_lag_time_max_ms="700", min_insync_replicas="2")
    await make_topic(trio, connect)
    silent = follower_of(trio)
    client = await connect(leader_of(trio))
    await produce(client, batch("a"))
    assert silent.replication is not None
    silent.replication.replicas.close()
    late = result_of(await produce(client, batch("b"), timeout_ms=100))
    assert late["error_code"] == errors.RequestTimedOut.code
    assert result_of(await produce(client, batch("c")))["error_code"] == errors.NONE
    assert replica(leader_of(trio)).high_watermark == 3
    others = {1, 2, 3} - {silent.node_id}
    await trio.until(lambda broker: in_sync(broker, *others))


async def test_where_acknowledged_means_flushed_all_replicas_have_flushed(
    start_trio: StartTrio, connect: Connect
) -> None:
    trio = await start_trio(log_flush_interval_messages="1")
    await make_topic(trio, connect)
    client = await connect(leader_of(trio))
    for number in range(5):
        await produce(client, batch(f"{number}"))
        for broker in trio.brokers.values():
            assert replica(broker).log.recovery_point == number + 1


async def test_consumers_are_sent_to_the_replica_in_their_rack(
    start_trio: StartTrio, connect: Connect
) -> None:
    trio = await start_trio(
        replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector"
    )
    await make_topic(trio, connect)
    leader = leader_of(trio)
    client = await connect(leader)
    await produce(client, batch("a"))
    near = follower_of(trio).node_id
    assert leader.cluster is not None
    brokers = leader.cluster.image.brokers
    for node_id in brokers:
        brokers[node_id] = replace(brokers[node_id], rack=f"rack {node_id}")
    for rack, preferred in ((f"rack {near}", near), (f"rack {leader.node_id}", -1), ("", -1)):
        answer = await client.call(FETCH, FETCH_VERSION, fetch_body("t", 1, rack_id=rack))
        (found,) = answer["responses"][0]["partitions"]
        assert found["preferred_read_replica"] == preferred


async def test_brokers_replicate_over_tls_and_know_each_other_by_certificates(
    start_trio: StartTrio, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    trio = await start_trio(
        listener_security_protocol_map="PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(certificates.broker),
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(certificates.authority),
        ssl_client_auth="required",
        auto_create_topics_enable="true",
    )
    client = certificates.make(common_name="client")
    settings = {
        "bootstrap.servers": f"127.0.0.1:{trio.ports[1]}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(certificates.authority),
        "ssl.certificate.location": str(client),
        "ssl.key.location": str(client),
        "allow.auto.create.topics": True,
    }

    def send() -> int:
        producer = Producer(settings)
        producer.produce("t", "x", partition=0)
        return producer.flush(TIMEOUT_S)

    assert await asyncio.to_thread(send) == 0
    assert [replica(broker).log.log_end_offset for broker in trio.brokers.values()] == [1] * 3


async def coordinator(trio: Trio, connect: Connect, group: str) -> RawClient:
    """Return a connection to the broker that coordinates a group."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            client = await connect(next(iter(trio.brokers.values())))
            answer = await client.call(FIND_COORDINATOR, 3, {"key": group, "key_type": 0})
            if answer["error_code"] == errors.NONE and answer["node_id"] in trio.brokers:
                return await connect(trio.brokers[answer["node_id"]])
            await asyncio.sleep(0.02)


def commit_body(group: str, offset: int) -> dict[str, Any]:
    part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": "t", "partitions": [part]}],
    }


async def committed(client: RawClient, group: str) -> tuple[int, int]:
    topics = [{"name": "t", "partition_indexes": [0]}]
    body = {"groups": [{"group_id": group, "topics": topics}]}
    answer = (await client.call(OFFSET_FETCH, 8, body))["groups"][0]
    if answer["error_code"]:
        return answer["error_code"], -1
    return 0, answer["topics"][0]["partitions"][0]["committed_offset"]


async def test_groups_go_on_where_their_partition_is_led(trio: Trio, connect: Connect) -> None:
    await make_topic(trio, connect)
    groups = [f"group {number}" for number in range(8)]
    for offset, group in enumerate(groups):
        client = await coordinator(trio, connect, group)
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                answer = await client.call(OFFSET_COMMIT, 8, commit_body(group, offset))
                if not answer["topics"][0]["partitions"][0]["error_code"]:
                    break
                await asyncio.sleep(0.02)
    elsewhere = await connect(trio.brokers[1])
    refused = {(await committed(elsewhere, group))[0] for group in groups}
    assert refused == {errors.NONE, errors.NotCoordinator.code}
    await trio.stop(1)
    for offset, group in enumerate(groups):
        client = await coordinator(trio, connect, group)
        async with asyncio.timeout(TIMEOUT_S):
            while (await committed(client, group))[0] == errors.CoordinatorLoadInProgress.code:
                await asyncio.sleep(0.01)
        assert await committed(client, group) == (0, offset)


async def test_transactions_reach_partitions_on_all_brokers(trio: Trio, connect: Connect) -> None:
    await make_topic(trio, connect, count=6)
    servers = ",".join(f"127.0.0.1:{port}" for port in trio.ports.values())
    await asyncio.to_thread(_transact, servers)
    found = await asyncio.to_thread(_read_committed, servers, 24)
    assert sorted(found) == sorted(f"{kept} {index}" for kept in range(4) for index in range(6))


def _transact(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "x", "linger.ms": 1})
    producer.init_transactions(TIMEOUT_S)
    for kept in range(4):
        for aborted in (True, False):
            producer.begin_transaction()
            for index in range(6):
                value = "never" if aborted else f"{kept} {index}"
                producer.produce("t", value, partition=index)
            producer.flush(TIMEOUT_S)
            if aborted:
                producer.abort_transaction(TIMEOUT_S)
            else:
                producer.commit_transaction(TIMEOUT_S)


def _read_committed(servers: str, count: int) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition("t", index, 0) for index in range(6)])
    found: list[str] = []
    while len(found) < count:
        messages = consumer.consume(count, TIMEOUT_S)
        assert messages
        found += [(message.value() or b"").decode() for message in messages]
    assert not consumer.consume(1, 0.2)
    consumer.close()
    return found


def lose_newest_segments(root: Path) -> None:
    for folder in root.glob("*/t-0"):
        *_, newest = sorted(each for each in folder.glob("*.log") if each.stat().st_size)
        for path in folder.glob(f"{newest.stem}.*"):
            path.unlink()


async def test_replicas_that_have_all_lost_the_newest_records_take_more(
    start_trio: StartTrio, connect: Connect, tmp_path: Path
) -> None:
    trio = await start_trio(
        min_insync_replicas="2", replica_lag_time_max_ms="1000", log_segment_bytes="1000"
    )
    await create(await connect(trio.brokers[trio.active]), "t", 1)
    servers = ",".join(f"127.0.0.1:{port}" for port in trio.ports.values())
    producer = BatchProducer(servers, "test", asyncio.get_running_loop())
    for number in range(20):
        await asyncio.wait_for(producer.append("t", b"%d" % number * 50, b"key"), TIMEOUT_S)
    await trio.stop(*trio.brokers)
    lose_newest_segments(tmp_path)
    await trio.start()
    await trio.until(lambda broker: log_end(broker) == 20)
    await trio.until(lambda broker: in_sync(broker, 1, 2, 3))
    position = await asyncio.wait_for(producer.append("t", b"more", b"key"), TIMEOUT_S)
    assert position.offset == 20
    await trio.until(lambda broker: log_end(broker) == 21)
    await producer.close()


async def test_a_replica_whose_log_is_gone_gets_it_from_the_others_and_does_not_lead_before(
    start_trio: StartTrio, connect: Connect, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trio = await start_trio(min_insync_replicas="1")
    await make_topic(trio, connect)
    leader = leader_of(trio)
    client = await connect(leader)
    assert result_of(await produce(client, batch("a", "b", "c")))["error_code"] == errors.NONE
    # Alone, its topic is only there.
    place = {"partition_index": 0, "broker_ids": [leader.node_id]}
    alone = {"name": "alone", "num_partitions": -1, "replication_factor": -1}
    alone |= {"assignments": [place], "configs": []}
    asked = {"topics": [alone], "timeout_ms": 10_000}
    (created,) = (await client.call(CREATE_TOPICS, 7, asked))["topics"]
    assert created["error_code"] == errors.NONE
    await trio.until(lambda broker: broker.topics.get("alone") is not None)
    await client.close()
    node = leader.node_id
    others = {1, 2, 3} - {node}
    await trio.stop(node)
    for name in ("t-0", "alone-0"):
        shutil.rmtree(tmp_path / str(node) / name)
    caplog.clear()
    await trio.start(node)
    await trio.until(lambda broker: in_sync(broker, 1, 2, 3) and log_end(broker) == 3)
    assert replica(trio.brokers[min(others)]).log.read(0, 1000) == replica(
        trio.brokers[node]
    ).log.read(0, 1000)
    said = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(said) == 2
    assert any(each.startswith("alone-0 stays offline: ") for each in said)
    assert any("t-0 is gone: another replica in sync has its records" in each for each in said)
