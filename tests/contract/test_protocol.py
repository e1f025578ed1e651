"""Error codes of answers to requests that no client library sends like this."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker_core import errors
from broker_core.protocol import definitions as api
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.crc32c import crc32c
from tests.broker_core.server.raw_client import RawClient, fetch_body, produce_body
from waylog.config import parse_endpoint

NONE = errors.NONE


@pytest.fixture
async def client(bootstrap_servers: str) -> AsyncIterator[RawClient]:
    """Give a connection to the broker."""
    raw = await RawClient.connect(parse_endpoint(bootstrap_servers.split(",", maxsplit=1)[0]))
    yield raw
    await raw.close()


@pytest.fixture
async def topic_id(client: RawClient, topic: str) -> bytes:
    """Give the id of the topic once its partitions have leaders."""
    deadline = time.monotonic() + 60
    while True:
        answer = await client.call(
            api.METADATA, 12, {"topics": [{"topic_id": bytes(16), "name": topic}]}
        )
        (found,) = answer["topics"]
        asked = [
            {"partition_index": each, "current_leader_epoch": -1, "timestamp": -1}
            for each in range(3)
        ]
        ends = await client.call(
            api.LIST_OFFSETS, 9, {"topics": [{"name": topic, "partitions": asked}]}
        )
        # Metadata may name a leader that does not know of it yet.
        if not found["error_code"] and not any(
            each["error_code"] for each in ends["topics"][0]["partitions"]
        ):
            identity: bytes = found["topic_id"]
            return identity
        assert time.monotonic() < deadline


def records(**options: Any) -> bytearray:
    """Return a batch of one record with the present time."""
    return build_batch([(int(time.time() * 1000), b"k", b"v", ())], **options)


async def write(
    client: RawClient, topic: str, batch: bytes | bytearray, **more: Any
) -> dict[str, Any]:
    """Produce a batch; return the partition's part of the answer."""
    version = more.pop("version", 9)
    transactional_id = more.pop("transactional_id", None)
    body = produce_body(topic, bytes(batch), **more) | {"transactional_id": transactional_id}
    if version >= 13:
        raise ValueError("topic ids are not used here")
    answer = await client.call(api.PRODUCE, version, body)
    part: dict[str, Any] = answer["responses"][0]["partition_responses"][0]
    return part


async def coordinate(client: RawClient, kind: int, key: str) -> None:
    """Wait until a coordinator is available."""
    deadline = time.monotonic() + 60
    while True:
        answer = await client.call(
            api.FIND_COORDINATOR, 4, {"key_type": kind, "coordinator_keys": [key]}
        )
        if not answer["coordinators"][0]["error_code"]:
            return
        assert time.monotonic() < deadline


async def init(client: RawClient, transactional_id: str | None, **more: Any) -> dict[str, Any]:
    """Send InitProducerId until the coordinator is ready; return the answer."""
    if transactional_id is not None:
        await coordinate(client, 1, transactional_id)
    deadline = time.monotonic() + 60
    body = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000} | more
    while True:
        answer = await client.call(api.INIT_PRODUCER_ID, 4, body)
        again = {
            errors.CoordinatorLoadInProgress.code,
            errors.CoordinatorNotAvailable.code,
            errors.NotCoordinator.code,
            errors.ConcurrentTransactions.code,
        }
        if answer["error_code"] not in again:
            return answer
        assert time.monotonic() < deadline


@pytest.fixture
def name() -> str:
    """Give a name that was not used before."""
    return f"name-{uuid.uuid4().hex[:12]}"


async def test_batches_that_a_client_must_not_write_are_refused(
    client: RawClient, topic: str, topic_id: bytes
) -> None:
    control = records(is_control=True)
    assert (await write(client, topic, control))["error_code"] == errors.InvalidRecord.code
    broken = records()
    broken[-1] ^= 1
    assert (await write(client, topic, broken))["error_code"] == errors.CorruptMessage.code
    strange = records()
    strange[22] |= 7
    strange[17:21] = crc32c(bytes(strange[21:])).to_bytes(4, "big")
    assert (await write(client, topic, strange))["error_code"] != NONE
    invalid = errors.InvalidRequiredAcks.code
    assert (await write(client, topic, records(), acks=2))["error_code"] == invalid
    assert (await write(client, topic, records()))["base_offset"] == 0


async def test_sequences_of_idempotent_producers(
    client: RawClient, topic: str, topic_id: bytes
) -> None:
    identity = (await init(client, None))["producer_id"]

    def batch(sequence: int, epoch: int = 0) -> bytearray:
        return records(producer_id=identity, producer_epoch=epoch, base_sequence=sequence)

    for sequence in range(7):
        assert (await write(client, topic, batch(sequence)))["base_offset"] == sequence
    for sequence in range(2, 7):
        again = await write(client, topic, batch(sequence))
        assert (again["error_code"], again["base_offset"]) == (NONE, sequence)
    out_of_order = errors.OutOfOrderSequenceNumber.code
    assert (await write(client, topic, batch(9)))["error_code"] == out_of_order
    assert (await write(client, topic, batch(3, epoch=1)))["error_code"] == out_of_order
    assert (await write(client, topic, batch(0, epoch=1)))["base_offset"] == 7
    old = await write(client, topic, batch(7))
    assert old["error_code"] == errors.InvalidProducerEpoch.code
    answer = await client.call(
        api.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": topic, "partition_indexes": [0, 9]}]}
    )
    known, missing = answer["topics"][0]["partitions"]
    (producer,) = known["active_producers"]
    assert (producer["producer_id"], producer["producer_epoch"]) == (identity, 1)
    assert (producer["last_sequence"], producer["current_txn_start_offset"]) == (0, -1)
    assert missing["error_code"] == errors.UnknownTopicOrPartition.code


async def test_a_transaction_must_know_its_partitions(
    client: RawClient, topic: str, topic_id: bytes, name: str
) -> None:
    mine = await init(client, name)
    identity, epoch = mine["producer_id"], mine["producer_epoch"]

    def batch(sequence: int) -> bytearray:
        return records(
            producer_id=identity, producer_epoch=epoch, base_sequence=sequence,
            is_transactional=True,
        )  # fmt: skip

    refused = await write(client, topic, batch(0), transactional_id=name)
    assert refused["error_code"] == errors.InvalidTxnState.code
    answer = await _add(client, name, identity, epoch, topic, [0, 99])
    assert answer == {
        0: errors.OperationNotAttempted.code,
        99: errors.UnknownTopicOrPartition.code,
    }
    mapping = errors.InvalidProducerIdMapping.code
    assert await _add(client, name, identity + 1, epoch, topic, [0]) == {0: mapping}
    fenced = errors.ProducerFenced.code
    assert await _add(client, name, identity, epoch + 1, topic, [0]) == {0: fenced}
    assert await _add(client, name, identity, epoch, topic, [0]) == {0: NONE}
    assert (await write(client, topic, batch(0), transactional_id=name))["error_code"] == NONE
    plain = records(producer_id=identity, producer_epoch=epoch, base_sequence=1)
    outside = await write(client, topic, plain)
    assert outside["error_code"] == errors.InvalidTxnState.code
    described = await client.call(
        api.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [name, f"{name}-other"]}
    )
    states = {each["transactional_id"]: each for each in described["transaction_states"]}
    assert states[name]["transaction_state"] == "Ongoing"
    assert states[name]["topics"] == [{"topic": topic, "partitions": [0]}]
    assert states[f"{name}-other"]["error_code"] == errors.TransactionalIdNotFound.code
    assert (await _end(client, name, identity, epoch, committed=True))["error_code"] == NONE


async def _add(
    client: RawClient, name: str, identity: int, epoch: int, topic: str, partitions: list[int]
) -> dict[int, int]:
    deadline = time.monotonic() + 60
    while True:
        answer = await client.call(
            api.ADD_PARTITIONS_TO_TXN,
            3,
            {
                "v3_and_below_transactional_id": name,
                "v3_and_below_producer_id": identity,
                "v3_and_below_producer_epoch": epoch,
                "v3_and_below_topics": [{"name": topic, "partitions": partitions}],
            },
        )
        codes = {
            each["partition_index"]: each["partition_error_code"]
            for each in answer["results_by_topic_v3_and_below"][0]["results_by_partition"]
        }
        if errors.ConcurrentTransactions.code not in codes.values():
            return codes
        assert time.monotonic() < deadline


async def _end(
    client: RawClient, name: str, identity: int, epoch: int, *, committed: bool, version: int = 3
) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while True:
        answer = await client.call(
            api.END_TXN,
            version,
            {
                "transactional_id": name,
                "producer_id": identity,
                "producer_epoch": epoch,
                "committed": committed,
            },
        )
        if answer["error_code"] != errors.ConcurrentTransactions.code:
            return answer
        assert time.monotonic() < deadline


async def test_an_end_without_a_transaction_is_refused_and_a_repeated_one_is_not(
    client: RawClient, topic: str, topic_id: bytes, name: str
) -> None:
    mine = await init(client, name)
    identity, epoch = mine["producer_id"], mine["producer_epoch"]
    invalid = errors.InvalidTxnState.code
    assert (await _end(client, name, identity, epoch, committed=True))["error_code"] == invalid
    assert await _add(client, name, identity, epoch, topic, [0]) == {0: NONE}
    for _ in range(2):
        assert (await _end(client, name, identity, epoch, committed=True))["error_code"] == NONE
    assert (await _end(client, name, identity, epoch, committed=False))["error_code"] == invalid


async def test_a_producer_that_names_its_epoch_gets_the_next_and_an_older_one_is_fenced(
    client: RawClient, name: str
) -> None:
    mine = await init(client, name)
    identity = mine["producer_id"]
    again = await init(client, name, producer_id=identity, producer_epoch=0)
    assert (again["producer_id"], again["producer_epoch"]) == (identity, 1)
    repeated = await init(client, name, producer_id=identity, producer_epoch=0)
    assert repeated["producer_epoch"] == 1
    assert (await init(client, name))["producer_epoch"] == 2
    late = await init(client, name, producer_id=identity, producer_epoch=0)
    assert late["error_code"] == errors.ProducerFenced.code


async def test_the_newest_protocol_adds_partitions_itself_and_changes_the_epoch(
    client: RawClient, topic: str, topic_id: bytes, name: str
) -> None:
    mine = await init(client, name)
    identity, epoch = mine["producer_id"], mine["producer_epoch"]
    batch = records(
        producer_id=identity, producer_epoch=epoch, base_sequence=0, is_transactional=True
    )
    deadline = time.monotonic() + 60
    while True:
        written = await write(client, topic, batch, transactional_id=name, version=12)
        if written["error_code"] != errors.ConcurrentTransactions.code:
            break
        assert time.monotonic() < deadline
    assert written["error_code"] == NONE
    ended = await _end(client, name, identity, epoch, committed=True, version=5)
    assert (ended["error_code"], ended["producer_epoch"]) == (NONE, epoch + 1)
    again = await _end(client, name, identity, epoch, committed=True, version=5)
    assert (again["error_code"], again["producer_epoch"]) == (NONE, epoch + 1)
    late = await write(client, topic, batch, transactional_id=name, version=12)
    # Retrying a batch that is stored does no harm; the broker may also answer that it is fenced.
    assert late["error_code"] in {NONE, errors.InvalidProducerEpoch.code}
    deadline = time.monotonic() + 60
    while True:
        answer = await client.call(api.FETCH, 12, fetch_body(topic, 0, isolation_level=1))
        part = answer["responses"][0]["partitions"][0]
        if part["last_stable_offset"] == 2:
            break
        assert time.monotonic() < deadline
    assert part["aborted_transactions"] == []


async def test_states_that_do_not_exist_are_named(client: RawClient, name: str) -> None:
    await init(client, name)
    answer = await client.call(
        api.LIST_TRANSACTIONS, 0, {"state_filters": ["Empty", "Sleepy"], "producer_id_filters": []}
    )
    assert answer["unknown_state_filters"] == ["Sleepy"]
    assert name in {each["transactional_id"] for each in answer["transaction_states"]}


async def test_a_fetch_session_answers_what_is_new(
    client: RawClient, topic: str, topic_id: bytes
) -> None:
    async def fetch(session_id: int, epoch: int, *partitions: int) -> dict[str, Any]:
        body = fetch_body(topic, 0, session_id=session_id, session_epoch=epoch, min_bytes=0)
        asked = [
            {"partition": each, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
            for each in partitions
        ]
        body["topics"] = [{"topic": topic, "partitions": asked}] if asked else []
        return await client.call(api.FETCH, 12, body | {"forgotten_topics_data": []})

    first = await fetch(0, 0, 0, 1, 2)
    session_id = first["session_id"]
    assert session_id
    assert len(first["responses"][0]["partitions"]) == 3
    assert (await fetch(session_id, 1))["responses"] == []
    await write(client, topic, records(), partition=1)
    answer = await fetch(session_id, 2)
    assert [each["partition_index"] for each in answer["responses"][0]["partitions"]] == [1]
    wrong = await fetch(session_id, 9)
    assert wrong["error_code"] == errors.InvalidFetchSessionEpoch.code
    other = await fetch(session_id ^ 1, 1)
    assert other["error_code"] == errors.FetchSessionIdNotFound.code


async def test_epochs_of_leaders(client: RawClient, topic: str, topic_id: bytes) -> None:
    await write(client, topic, records())

    async def end(current: int, asked: int) -> tuple[int, int, int]:
        partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": asked}
        answer = await client.call(
            api.OFFSET_FOR_LEADER_EPOCH,
            4,
            {"replica_id": -1, "topics": [{"topic": topic, "partitions": [partition]}]},
        )
        found = answer["topics"][0]["partitions"][0]
        return found["error_code"], found["leader_epoch"], found["end_offset"]

    assert await end(0, 0) == (NONE, 0, 1)
    assert await end(-1, 0) == (NONE, 0, 1)
    assert await end(-1, 5) == (NONE, -1, -1)
    assert await end(7, 0) == (errors.UnknownLeaderEpoch.code, -1, -1)


async def test_special_timestamps(client: RawClient, topic: str, topic_id: bytes) -> None:
    # Older records than retention.ms the broker would delete, at a moment of its own.
    now = int(time.time() * 1000)
    for later in (1_000, 3_000, 2_000):
        await write(client, topic, build_batch([(now + later, b"k", b"v", ())]))

    async def look_up(timestamp: int) -> tuple[int, int, int]:
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
        answer = await client.call(
            api.LIST_OFFSETS,
            9,
            {"replica_id": -1, "topics": [{"name": topic, "partitions": [partition]}]},
        )
        found = answer["topics"][0]["partitions"][0]
        return found["error_code"], found["timestamp"], found["offset"]

    assert await look_up(-1) == (NONE, -1, 3)
    assert await look_up(-2) == (NONE, -1, 0)
    assert await look_up(-3) == (NONE, now + 3_000, 1)
    assert await look_up(-4) == (NONE, -1, 0)
    assert await look_up(-5) == (NONE, -1, -1)
    assert await look_up(now + 1_500) == (NONE, now + 3_000, 1)
    assert await look_up(now + 4_000) == (NONE, -1, -1)


async def test_one_broker_has_nothing_to_elect_or_to_move(
    client: RawClient, topic: str, topic_id: bytes
) -> None:
    node_id = (await client.call(api.METADATA, 12, {"topics": []}))["brokers"][0]["node_id"]
    elected = await client.call(
        api.ELECT_LEADERS,
        2,
        {"election_type": 0, "topic_partitions": [{"topic": topic, "partitions": [0, 9]}]},
    )
    results = elected["replica_election_results"][0]["partition_result"]
    assert {each["partition_id"]: each["error_code"] for each in results} == {
        0: errors.ElectionNotNeeded.code,
        9: errors.UnknownTopicOrPartition.code,
    }

    async def move(partition: int, replicas: list[int] | None) -> int:
        asked = {"partition_index": partition, "replicas": replicas}
        answer = await client.call(
            api.ALTER_PARTITION_REASSIGNMENTS,
            0,
            {"topics": [{"name": topic, "partitions": [asked]}]},
        )
        code: int = answer["responses"][0]["partitions"][0]["error_code"]
        return code

    assert await move(0, [node_id]) == NONE
    assert await move(0, [node_id + 7]) == errors.InvalidReplicaAssignment.code
    assert await move(0, None) == errors.NoReassignmentInProgress.code
    assert await move(9, [node_id]) == errors.UnknownTopicOrPartition.code
    listed = await client.call(api.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None})
    assert (listed["error_code"], listed["topics"]) == (NONE, [])


async def test_heartbeats_of_consumers_that_make_no_sense(
    client: RawClient, topic: str, topic_id: bytes, name: str
) -> None:
    await coordinate(client, 0, name)
    member = str(uuid.uuid4())
    joining = {
        "group_id": name,
        "member_id": member,
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }

    async def beat(**more: Any) -> int:
        deadline = time.monotonic() + 60
        while True:
            answer = await client.call(api.CONSUMER_GROUP_HEARTBEAT, 1, joining | more)
            code: int = answer["error_code"]
            if code not in {14, 15, 16}:  # the coordinator is not ready
                return code
            assert time.monotonic() < deadline

    invalid = errors.InvalidRequest.code
    assert await beat(group_id="") == invalid
    assert await beat(member_id="") == invalid
    assert await beat(rebalance_timeout_ms=-1) == invalid
    assert await beat(topic_partitions=None) == invalid
    assert await beat(subscribed_topic_names=None) == invalid
    assert await beat(instance_id="") == invalid
    assert await beat(member_epoch=-2) == invalid
    assert await beat(server_assignor="best") == errors.UnsupportedAssignor.code
    regex = errors.InvalidRegularExpression.code
    assert await beat(subscribed_topic_names=None, subscribed_topic_regex="(") == regex
    assert await beat(member_epoch=3) == errors.GroupIdNotFound.code
    assert await beat() == NONE
    assert await beat(member_epoch=9) == errors.FencedMemberEpoch.code
    assert await beat(member_id="stranger", member_epoch=1) == errors.UnknownMemberId.code
    assert await beat(member_epoch=-1) == NONE


async def test_offsets_are_kept_by_the_topics_id(
    client: RawClient, topic: str, topic_id: bytes, name: str
) -> None:
    await coordinate(client, 0, name)

    def asked(identity: bytes, **more: Any) -> dict[str, Any]:
        return {"topic_id": identity, "partitions": [{"partition_index": 1} | more]}

    committed = await client.call(
        api.OFFSET_COMMIT,
        10,
        {
            "group_id": name,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [
                asked(topic_id, committed_offset=7, committed_metadata="m"),
                asked(b"x" * 16, committed_offset=7, committed_metadata="m"),
            ],
        },
    )
    codes = {each["topic_id"]: each["partitions"][0]["error_code"] for each in committed["topics"]}
    assert codes == {topic_id: NONE, b"x" * 16: errors.UnknownTopicId.code}
    fetched = await client.call(
        api.OFFSET_FETCH,
        10,
        {
            "groups": [
                {
                    "group_id": name,
                    "topics": [
                        {"topic_id": topic_id, "partition_indexes": [1]},
                        {"topic_id": b"x" * 16, "partition_indexes": [1]},
                    ],
                }
            ]
        },
    )
    found = {each["topic_id"]: each["partitions"][0] for each in fetched["groups"][0]["topics"]}
    assert (found[topic_id]["committed_offset"], found[topic_id]["metadata"]) == (7, "m")
    assert found[b"x" * 16]["error_code"] == errors.UnknownTopicId.code
