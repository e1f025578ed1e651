"""Authorization of every API: the required operation, and the error for each refused resource."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from broker_core.protocol import definitions as api
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.schema import AnyApi
from broker_core.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from broker_core.server.authorization import RULES
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient, fetch_body, produce_body
from tests.broker_core.server.topics import administer, create_topic, start_coordinators

Start = Callable[..., Awaitable[Broker]]

TOPIC, GROUP, CLUSTER, TRANSACTION = 29, 30, 31, 53
SECURED = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.jaas.config": 'Plain required user_root="r" user_anna="a";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root",
    "auto.create.topics.enable": "true",
}


@pytest.fixture
async def broker(start: Start) -> Broker:
    broker = await start(**SECURED)
    for name in ("open", "closed"):
        create_topic(broker, name, 1, {})
    return broker


@pytest.fixture
async def anna(broker: Broker) -> AsyncIterator[RawClient]:
    client = await log_in(broker, "anna", "a")
    yield client
    await client.close()


@pytest.fixture
async def root(broker: Broker) -> AsyncIterator[RawClient]:
    client = await log_in(broker, "root", "r")
    yield client
    await client.close()


async def log_in(broker: Broker, user: str, password: str) -> RawClient:
    client = await RawClient.connect(broker.endpoint)
    await client.call(api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    token = f"\0{user}\0{password}".encode()
    answer = await client.call(api.SASL_AUTHENTICATE, 2, {"auth_bytes": token})
    assert answer["error_code"] == 0
    return client


def allow(
    broker: Broker,
    operation: Operation,
    kind: ResourceType = ResourceType.TOPIC,
    name: str = "open",
    permission: Permission = Permission.ALLOW,
) -> None:
    assert broker.authorizer is not None
    rule = Acl(kind, name, PatternType.LITERAL, "User:anna", "*", operation, permission)
    broker.authorizer.add([rule])


def codes(answer: Any) -> Iterator[int]:
    """Yield all error codes in a response."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name in {"error_code", "partition_error_code"}:
                yield value
            else:
                yield from codes(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from codes(each)


BATCH = bytes(build_batch([(1, b"k", b"v", ())]))
PARTITION = [{"partition_index": 0, "timestamp": -1, "offset": 0, "committed_offset": 1}]
RESOURCE = {"resource_type": 2, "resource_name": "closed", "configs": []}

#: (API, version, request, the error code for a user without any permission)
REFUSALS: list[tuple[AnyApi, int, dict[str, Any], int]] = [
    (api.PRODUCE, 9, produce_body("closed", BATCH), TOPIC),
    (api.FETCH, 11, fetch_body("closed", 0), TOPIC),
    (api.LIST_OFFSETS, 6, {"topics": [{"name": "closed", "partitions": PARTITION}]}, TOPIC),
    (api.METADATA, 9, {"topics": [{"name": "closed"}]}, TOPIC),
    (api.METADATA, 9,
     {"topics": [{"name": "new"}], "allow_auto_topic_creation": True}, TOPIC),
    (api.OFFSET_COMMIT, 8,
     {"group_id": "g", "topics": [{"name": "closed", "partitions": PARTITION}]}, GROUP),
    (api.OFFSET_FETCH, 7, {"group_id": "g", "topics": None}, GROUP),
    (api.OFFSET_FETCH, 8, {"groups": [{"group_id": "g", "topics": None}]}, GROUP),
    (api.FIND_COORDINATOR, 3, {"key": "g"}, GROUP),
    (api.FIND_COORDINATOR, 4, {"coordinator_keys": ["g", "h"]}, GROUP),
    (api.FIND_COORDINATOR, 3, {"key": "t", "key_type": 1}, TRANSACTION),
    (api.JOIN_GROUP, 5, {"group_id": "g", "session_timeout_ms": 10_000}, GROUP),
    (api.HEARTBEAT, 3, {"group_id": "g"}, GROUP),
    (api.LEAVE_GROUP, 3, {"group_id": "g"}, GROUP),
    (api.SYNC_GROUP, 3, {"group_id": "g"}, GROUP),
    (api.DESCRIBE_GROUPS, 5, {"groups": ["g"]}, GROUP),
    (api.CREATE_TOPICS, 5, {"topics": [{"name": "new", "num_partitions": 1}]}, TOPIC),
    (api.DELETE_TOPICS, 5, {"topic_names": ["closed"]}, TOPIC),
    (api.DELETE_TOPICS, 6, {"topics": [{"name": "closed"}]}, TOPIC),
    (api.DELETE_RECORDS, 2, {"topics": [{"name": "closed", "partitions": PARTITION}]}, TOPIC),
    (api.INIT_PRODUCER_ID, 4, {"transactional_id": None}, CLUSTER),
    (api.INIT_PRODUCER_ID, 4, {"transactional_id": "t"}, TRANSACTION),
    (api.OFFSET_FOR_LEADER_EPOCH, 4,
     {"topics": [{"topic": "closed", "partitions": [{"partition": 0}]}]}, TOPIC),
    (api.ADD_PARTITIONS_TO_TXN, 3,
     {"v3_and_below_transactional_id": "t",
      "v3_and_below_topics": [{"name": "closed", "partitions": [0]}]}, TRANSACTION),
    (api.ADD_OFFSETS_TO_TXN, 3, {"transactional_id": "t", "group_id": "g"}, TRANSACTION),
    (api.END_TXN, 3, {"transactional_id": "t"}, TRANSACTION),
    (api.TXN_OFFSET_COMMIT, 3,
     {"transactional_id": "t", "group_id": "g",
      "topics": [{"name": "closed", "partitions": PARTITION}]}, TRANSACTION),
    (api.WRITE_TXN_MARKERS, 1,
     {"markers": [{"topics": [{"name": "closed", "partition_indexes": [0]}]}]}, CLUSTER),
    (api.DESCRIBE_ACLS, 2, {}, CLUSTER),
    (api.CREATE_ACLS, 2, {"creations": [{}]}, CLUSTER),
    (api.DELETE_ACLS, 2, {"filters": [{}]}, CLUSTER),
    (api.DESCRIBE_CONFIGS, 4, {"resources": [RESOURCE]}, TOPIC),
    (api.DESCRIBE_CONFIGS, 4,
     {"resources": [{"resource_type": 4, "resource_name": "0"}]}, CLUSTER),
    (api.ALTER_CONFIGS, 2, {"resources": [RESOURCE]}, TOPIC),
    (api.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [RESOURCE]}, TOPIC),
    (api.DESCRIBE_LOG_DIRS, 4, {"topics": None}, CLUSTER),
    (api.CREATE_PARTITIONS, 3, {"topics": [{"name": "closed", "count": 2}]}, TOPIC),
    (api.DELETE_GROUPS, 2, {"groups_names": ["g"]}, GROUP),
    (api.OFFSET_DELETE, 0, {"group_id": "g", "topics": []}, GROUP),
    (api.DESCRIBE_CLIENT_QUOTAS, 1, {}, CLUSTER),
    (api.ALTER_CLIENT_QUOTAS, 1, {"entries": [{}]}, CLUSTER),
    (api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}, CLUSTER),
    (api.ALTER_USER_SCRAM_CREDENTIALS, 0,
     {"deletions": [{"name": "x", "mechanism": 1}]}, CLUSTER),
    (api.DESCRIBE_PRODUCERS, 0,
     {"topics": [{"name": "closed", "partition_indexes": [0]}]}, TOPIC),
    (api.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["t"]}, TRANSACTION),
    (api.LIST_CONFIG_RESOURCES, 1, {"resource_types": []}, CLUSTER),
    (api.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [{"name": "closed"}]}, TOPIC),
    (api.ELECT_LEADERS, 2, {"topic_partitions": None}, CLUSTER),
    (api.ALTER_PARTITION_REASSIGNMENTS, 0, {}, CLUSTER),
    (api.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None}, CLUSTER),
    (api.DESCRIBE_QUORUM, 0, {}, CLUSTER),
    (api.CONSUMER_GROUP_HEARTBEAT, 1, {"group_id": "g", "member_id": "m"}, GROUP),
    (api.CONSUMER_GROUP_DESCRIBE, 0, {"group_ids": ["g"]}, GROUP),
    (api.SHARE_GROUP_HEARTBEAT, 1, {"group_id": "g", "member_id": "m"}, GROUP),
    (api.SHARE_GROUP_DESCRIBE, 1, {"group_ids": ["g"]}, GROUP),
    (api.SHARE_FETCH, 2, {"group_id": "g", "member_id": "m"}, GROUP),
    (api.SHARE_ACKNOWLEDGE, 2, {"group_id": "g", "member_id": "m"}, GROUP),
    (api.DESCRIBE_SHARE_GROUP_OFFSETS, 0,
     {"groups": [{"group_id": "g", "topics": None}]}, GROUP),
    (api.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": "g"}, GROUP),
    (api.DELETE_SHARE_GROUP_OFFSETS, 0, {"group_id": "g"}, GROUP),
]  # fmt: skip

#: What only brokers ask each other ends the connection of anybody else.
BETWEEN_BROKERS: list[AnyApi] = [
    api.INITIALIZE_SHARE_GROUP_STATE,
    api.READ_SHARE_GROUP_STATE,
    api.WRITE_SHARE_GROUP_STATE,
    api.DELETE_SHARE_GROUP_STATE,
    api.READ_SHARE_GROUP_STATE_SUMMARY,
]

#: Those that need no right, that leave out what one may not see, or that do nothing here.
NEVER_REFUSED: list[AnyApi] = [
    *(api.API_VERSIONS, api.SASL_HANDSHAKE, api.SASL_AUTHENTICATE, api.DESCRIBE_CLUSTER),
    *(api.LIST_GROUPS, api.LIST_TRANSACTIONS, api.ALTER_REPLICA_LOG_DIRS),
]


def filled(plan: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return a request with default values for its missing fields."""
    message = dict(given)
    for field in plan.fields:
        if field.name not in message:
            message[field.name] = [] if field.array else field.default
        elif field.array and field.struct is not None and message[field.name]:
            message[field.name] = [filled(field.struct, each) for each in message[field.name]]
    return message


def test_every_api_has_a_rule() -> None:
    assert [each.name for key, each in api.APIS.items() if key not in RULES] == []


def test_every_api_is_tried_here() -> None:
    tried = {each.name for each in (*BETWEEN_BROKERS, *NEVER_REFUSED)}
    tried |= {which.name for which, *_ in REFUSALS}
    assert tried == {each.name for each in api.APIS.values()}


@pytest.mark.parametrize("which", BETWEEN_BROKERS, ids=lambda which: which.name)
async def test_what_brokers_ask_each_other_is_for_brokers(anna: RawClient, which: AnyApi) -> None:
    version = which.versions[1]
    anna.send(which, version, filled(which.request_plan(version), {"group_id": "g"}))
    assert await anna.is_closed_by_peer()


@pytest.mark.parametrize(
    ("which", "version", "body", "code"),
    REFUSALS,
    ids=[f"{case[0].name}-{case[1]}-{index}" for index, case in enumerate(REFUSALS)],
)
async def test_who_has_no_right_gets_kafkas_error(
    broker: Broker, anna: RawClient, which: AnyApi, version: int, body: dict[str, Any], code: int
) -> None:
    answer = await anna.call(which, version, filled(which.request_plan(version), body))
    found = set(codes(answer))
    assert code in found
    assert found <= {code, 0}
    assert broker.topics.get("closed") is not None
    assert broker.topics.get("new") is None


@pytest.mark.parametrize(
    ("which", "version", "body", "code"),
    REFUSALS,
    ids=[f"{case[0].name}-{case[1]}-{index}" for index, case in enumerate(REFUSALS)],
)
async def test_a_super_user_is_never_refused(
    root: RawClient, which: AnyApi, version: int, body: dict[str, Any], code: int
) -> None:
    answer = await root.call(which, version, filled(which.request_plan(version), body))
    assert not set(codes(answer)) & {TOPIC, GROUP, CLUSTER, TRANSACTION}


async def test_what_is_allowed_is_done_beside_what_is_not(broker: Broker, anna: RawClient) -> None:
    allow(broker, Operation.WRITE)
    body = produce_body("open", BATCH)
    body["topic_data"] += produce_body("closed", BATCH)["topic_data"]
    answer = await anna.call(api.PRODUCE, 8, body)
    found = {
        each["name"]: each["partition_responses"][0]["error_code"] for each in answer["responses"]
    }
    assert found == {"open": 0, "closed": TOPIC}
    closed = broker.topics.get("closed")
    assert closed is not None
    assert closed.partitions[0].log.log_end_offset == 0


async def test_a_record_that_asks_for_no_answer_and_is_refused_ends_the_connection(
    anna: RawClient,
) -> None:
    anna.send(api.PRODUCE, 8, produce_body("closed", BATCH, acks=0))
    assert await anna.is_closed_by_peer()


async def test_only_what_one_may_see_is_listed(broker: Broker, anna: RawClient) -> None:
    allow(broker, Operation.DESCRIBE)
    answer = await anna.call(
        api.METADATA, 9,
        filled(api.METADATA.request_plan(9), {
            "topics": None,
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        }),
    )  # fmt: skip
    assert [topic["name"] for topic in answer["topics"]] == ["open"]
    assert answer["topics"][0]["topic_authorized_operations"] == 1 << Operation.DESCRIBE
    assert answer["cluster_authorized_operations"] == 0
    everything = await anna.call(api.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [], "cursor": None})
    assert [topic["name"] for topic in everything["topics"]] == ["open"]


async def test_in_the_oldest_version_nothing_that_is_left_does_not_mean_everything(
    anna: RawClient, root: RawClient
) -> None:
    answer = await anna.call(api.METADATA, 0, {"topics": [{"name": "closed"}]})
    assert [(each["name"], each["error_code"]) for each in answer["topics"]] == [("closed", TOPIC)]
    answer = await root.call(api.METADATA, 0, {"topics": []})
    assert len(answer["topics"]) == 2


@pytest.mark.parametrize("version", [0, 1, 12])
async def test_all_topics_are_those_that_a_client_may_see(
    broker: Broker, anna: RawClient, root: RawClient, version: int
) -> None:
    names = [f"t{number}" for number in range(20)]
    for name in names:
        create_topic(broker, name, 1, {})
        if name in names[::2]:
            allow(broker, Operation.DESCRIBE, name=name)
    everything: dict[str, Any] = {
        "topics": None if version else [],
        "allow_auto_topic_creation": True,
    }
    answer = await anna.call(api.METADATA, version, everything)
    assert [each["name"] for each in answer["topics"]] == names[::2]
    assert set(codes(answer)) == {0}
    answer = await root.call(api.METADATA, version, everything)
    assert {each["name"] for each in answer["topics"]} >= {*names}
    # What is left of the names that were asked for may be none: that is not all.
    asked = {"topics": [{"name": name} for name in names[1::2]]}
    answer = await anna.call(api.METADATA, version, asked)
    refused = [(each["name"], each["error_code"]) for each in answer["topics"]]
    assert refused == [(name, TOPIC) for name in names[1::2]]


async def test_a_right_that_is_taken_away_ends_reading(broker: Broker, anna: RawClient) -> None:
    allow(broker, Operation.READ)
    answer = await anna.call(api.FETCH, 11, fetch_body("open", 0))
    assert set(codes(answer)) == {0}
    allow(broker, Operation.READ, permission=Permission.DENY)
    answer = await anna.call(api.FETCH, 11, fetch_body("open", 0))
    assert TOPIC in set(codes(answer))


async def test_groups_that_one_may_not_describe_are_not_listed(
    broker: Broker, anna: RawClient, root: RawClient
) -> None:
    await start_coordinators(broker)
    part = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": None}]
    for group in ("mine", "theirs"):
        await root.call(
            api.OFFSET_COMMIT, 5,
            filled(api.OFFSET_COMMIT.request_plan(5), {
                "group_id": group, "topics": [{"name": "closed", "partitions": part}],
                "generation_id_or_member_epoch": -1,
            }),
        )  # fmt: skip
    allow(broker, Operation.DESCRIBE, ResourceType.GROUP, "mine")
    answer = await anna.call(api.LIST_GROUPS, 3, {})
    assert [group["group_id"] for group in answer["groups"]] == ["mine"]
    # The group is visible, its topic is not.
    offsets = await anna.call(api.OFFSET_FETCH, 7,
        {"group_id": "mine", "topics": None, "require_stable": False})  # fmt: skip
    assert offsets == offsets | {"topics": [], "error_code": 0}
    asked = {"name": "closed", "partition_indexes": [0]}
    offsets = await anna.call(api.OFFSET_FETCH, 7,
        {"group_id": "mine", "topics": [asked], "require_stable": False})  # fmt: skip
    assert offsets["topics"][0]["partitions"][0]["error_code"] == TOPIC


def of_group(which: AnyApi, version: int, more: dict[str, Any]) -> dict[str, Any]:
    """Return a request of member `m` of group `g`."""
    return filled(which.request_plan(version), {"group_id": "g", "member_id": "m"} | more)


def one_partition(broker: Broker, name: str, **more: Any) -> list[dict[str, Any]]:
    topic = broker.topics.get(name)
    assert topic is not None
    return [{"topic_id": topic.topic_id, "partitions": [{"partition_index": 0} | more]}]


async def test_records_of_a_topic_that_one_may_not_read_are_not_shared(
    broker: Broker, anna: RawClient, root: RawClient
) -> None:
    await start_coordinators(broker)
    earliest = {"share.auto.offset.reset": "earliest"}
    administer(broker, lambda operations: operations.change_group("g", earliest))
    allow(broker, Operation.READ, ResourceType.GROUP, "g")
    allow(broker, Operation.READ)
    for name in ("open", "closed"):
        await root.call(api.PRODUCE, 9, produce_body(name, BATCH))

    async def fetch(name: str, epoch: int) -> dict[str, Any]:
        more = {
            **{"share_session_epoch": epoch, "max_wait_ms": 10_000, "max_bytes": 1 << 20},
            **{"max_records": 10, "topics": one_partition(broker, name)},
        }
        body = of_group(api.SHARE_FETCH, 2, more)
        answer = await anna.call(api.SHARE_FETCH, 2, body)
        assert answer["error_code"] == 0
        (topic,) = answer["responses"]
        (partition,) = topic["partitions"]
        return dict(partition)

    refused = await fetch("closed", 0)
    assert (refused["error_code"], refused["acquired_records"]) == (TOPIC, [])
    assert not refused["records"]
    assert len((await fetch("open", 0))["acquired_records"]) == 1

    async def acknowledge(name: str, epoch: int) -> int:
        batch = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
        topics = one_partition(broker, name, acknowledgement_batches=[batch])
        more = {"share_session_epoch": epoch, "topics": topics}
        body = of_group(api.SHARE_ACKNOWLEDGE, 2, more)
        answer = await anna.call(api.SHARE_ACKNOWLEDGE, 2, body)
        return int(answer["responses"][0]["partitions"][0]["error_code"])

    assert await acknowledge("closed", 1) == TOPIC
    assert await acknowledge("open", 2) == 0


async def test_of_a_share_group_one_is_told_nothing_of_topics_that_one_may_not_describe(
    broker: Broker, anna: RawClient, root: RawClient
) -> None:
    await start_coordinators(broker)
    plan = api.SHARE_GROUP_HEARTBEAT.request_plan(1)
    joining = {"group_id": "g", "member_id": "m", "subscribed_topic_names": ["open", "closed"]}
    assert set(codes(await root.call(api.SHARE_GROUP_HEARTBEAT, 1, filled(plan, joining)))) == {0}
    allow(broker, Operation.DESCRIBE, ResourceType.GROUP, "g")
    allow(broker, Operation.DESCRIBE)

    async def topics_of(client: RawClient, *named: str) -> dict[str, tuple[bool, set[int]]]:
        """Return whether an id is told, and the errors, by topic."""
        asked = [{"topic_name": name, "partitions": [0]} for name in named]
        body = {"groups": [{"group_id": "g", "topics": asked or None}]}
        answer = await client.call(api.DESCRIBE_SHARE_GROUP_OFFSETS, 1, body)
        (group,) = answer["groups"]
        return {
            each["topic_name"]: (any(bytes(each["topic_id"])), set(codes(each["partitions"])))
            for each in group["topics"]
        }

    assert await topics_of(root) == {"open": (True, {0}), "closed": (True, {0})}
    assert await topics_of(anna) == {"open": (True, {0})}
    nothing = (False, {TOPIC})
    assert await topics_of(anna, "open", "closed", "none") == {
        "open": (True, {0}), "closed": nothing, "none": nothing
    }  # fmt: skip
    asking = {"group_ids": ["g"], "include_authorized_operations": False}
    (group,) = (await root.call(api.SHARE_GROUP_DESCRIBE, 1, asking))["groups"]
    assert (group["error_code"], len(group["members"])) == (0, 1)
    (group,) = (await anna.call(api.SHARE_GROUP_DESCRIBE, 1, asking))["groups"]
    assert (group["error_code"], group["members"]) == (TOPIC, [])
    allow(broker, Operation.DESCRIBE, name="closed")
    (group,) = (await anna.call(api.SHARE_GROUP_DESCRIBE, 1, asking))["groups"]
    assert (group["error_code"], len(group["members"])) == (0, 1)


async def test_where_a_share_group_is_can_be_changed_in_topics_that_one_may_read(
    broker: Broker, anna: RawClient, root: RawClient
) -> None:
    await start_coordinators(broker)
    plan = api.SHARE_GROUP_HEARTBEAT.request_plan(1)
    for epoch, names in ((0, ["open", "closed"]), (-1, None)):
        beat = {"member_id": "m", "member_epoch": epoch, "subscribed_topic_names": names}
        await root.call(api.SHARE_GROUP_HEARTBEAT, 1, filled(plan, {"group_id": "g"} | beat))
    for operation in (Operation.READ, Operation.DELETE):
        allow(broker, operation, ResourceType.GROUP, "g")
    allow(broker, Operation.READ)
    asked = ("open", "closed", "none")
    partitions = [{"partition_index": 0, "start_offset": 0}]
    moves = {"topics": [{"topic_name": name, "partitions": partitions} for name in asked]}
    moved = await anna.call(api.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": "g"} | moves)
    deletions = {"topics": [{"topic_name": name} for name in asked]}
    deleted = await anna.call(api.DELETE_SHARE_GROUP_OFFSETS, 0, {"group_id": "g"} | deletions)
    for answer in (moved, deleted):
        told = {each["topic_name"]: each for each in answer["responses"]}
        assert set(codes(told["open"])) == {0}
        for name in ("closed", "none"):
            assert set(codes(told[name])) == {TOPIC}
            assert not any(bytes(told[name]["topic_id"]))


async def test_a_consumer_group_with_a_topic_that_one_may_not_describe_is_not_described(
    broker: Broker, anna: RawClient, root: RawClient
) -> None:
    await start_coordinators(broker)
    plan = api.CONSUMER_GROUP_HEARTBEAT.request_plan(1)
    joining = {
        **{"group_id": "g", "member_id": "m", "rebalance_timeout_ms": 10_000},
        **{"subscribed_topic_names": ["closed"], "topic_partitions": []},
    }
    joined = await root.call(api.CONSUMER_GROUP_HEARTBEAT, 1, filled(plan, joining))
    assert joined["error_code"] == 0
    allow(broker, Operation.DESCRIBE, ResourceType.GROUP, "g")
    asking = {"group_ids": ["g"], "include_authorized_operations": False}
    (group,) = (await root.call(api.CONSUMER_GROUP_DESCRIBE, 1, asking))["groups"]
    assert (group["error_code"], len(group["members"])) == (0, 1)
    (group,) = (await anna.call(api.CONSUMER_GROUP_DESCRIBE, 1, asking))["groups"]
    assert (group["error_code"], group["members"]) == (TOPIC, [])


async def test_a_regular_expression_assigns_no_topic_that_one_may_not_describe(
    broker: Broker, anna: RawClient
) -> None:
    await start_coordinators(broker)
    allow(broker, Operation.READ, ResourceType.GROUP, "g")
    allow(broker, Operation.DESCRIBE, ResourceType.TOPIC, "open")
    plan = api.CONSUMER_GROUP_HEARTBEAT.request_plan(1)
    joining = {
        **{"group_id": "g", "member_id": "m", "rebalance_timeout_ms": 10_000},
        **{"subscribed_topic_regex": ".*", "topic_partitions": []},
        "subscribed_topic_names": None,
    }
    joined = await anna.call(api.CONSUMER_GROUP_HEARTBEAT, 1, filled(plan, joining))
    assert joined["error_code"] == 0
    assigned = {each["topic_id"] for each in joined["assignment"]["topic_partitions"]}
    topic = broker.topics.get("open")
    assert topic is not None
    assert assigned == {topic.topic_id}


async def test_members_with_one_regular_expression_have_the_topics_that_each_may_describe(
    broker: Broker, anna: RawClient, root: RawClient
) -> None:
    await start_coordinators(broker)
    allow(broker, Operation.READ, ResourceType.GROUP, "g")
    allow(broker, Operation.DESCRIBE, ResourceType.TOPIC, "open")
    plan = api.CONSUMER_GROUP_HEARTBEAT.request_plan(1)
    assigned: dict[str, list[dict[str, Any]]] = {"a": [], "r": []}
    epochs = {"a": 0, "r": 0}

    async def beat(client: RawClient, name: str) -> set[str]:
        fields = {
            **{"group_id": "g", "member_id": name, "member_epoch": epochs[name]},
            **{"rebalance_timeout_ms": 10_000, "topic_partitions": assigned[name]},
            **{"subscribed_topic_regex": "open|closed", "subscribed_topic_names": None},
        }
        answer = await client.call(api.CONSUMER_GROUP_HEARTBEAT, 1, filled(plan, fields))
        assert answer["error_code"] == 0
        epochs[name] = answer["member_epoch"]
        assigned[name] = answer["assignment"]["topic_partitions"]
        ids = {each["topic_id"] for each in assigned[name]}
        return {topic.name for topic in broker.topics if topic.topic_id in ids}

    assert await beat(anna, "a") == {"open"}
    for _ in range(3):
        of_root, of_anna = await beat(root, "r"), await beat(anna, "a")
    assert "closed" in of_root
    assert "closed" not in of_anna
    # A right that she gets counts from her next heartbeats on.
    left = {"group_id": "g", "member_id": "r", "member_epoch": -1}
    await root.call(api.CONSUMER_GROUP_HEARTBEAT, 1, filled(plan, left))
    for _ in range(3):
        of_anna = await beat(anna, "a")
    assert of_anna == {"open"}
    allow(broker, Operation.DESCRIBE, ResourceType.TOPIC, "closed")
    for _ in range(3):
        of_anna = await beat(anna, "a")
    assert of_anna == {"open", "closed"}


async def test_one_topic_without_a_right_stops_the_others_of_a_transaction(
    broker: Broker, anna: RawClient
) -> None:
    allow(broker, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "t")
    allow(broker, Operation.WRITE)
    body = {
        "v3_and_below_transactional_id": "t",
        "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in ("open", "closed")],
    }
    plan = api.ADD_PARTITIONS_TO_TXN.request_plan(3)
    answer = await anna.call(api.ADD_PARTITIONS_TO_TXN, 3, filled(plan, body))
    assert set(codes(answer)) - {0} == {TOPIC, 55}


async def test_an_idempotent_producer_needs_a_topic_to_write_to(
    broker: Broker, anna: RawClient
) -> None:
    allow(broker, Operation.WRITE)
    body = filled(api.INIT_PRODUCER_ID.request_plan(4), {"transactional_id": None})
    assert (await anna.call(api.INIT_PRODUCER_ID, 4, body))["error_code"] == 0


async def test_rules_users_and_quotas_survive_a_restart(start: Start, broker: Broker) -> None:
    root = await log_in(broker, "root", "r")
    creation = {
        "resource_type": 2, "resource_name": "open", "resource_pattern_type": 3,
        "principal": "User:anna", "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip
    assert set(codes(await root.call(api.CREATE_ACLS, 3, {"creations": [creation]}))) == {0}
    user = {"name": "x", "mechanism": 1, "iterations": 4096, "salt": b"s",
            "salted_password": bytes(32)}  # fmt: skip
    await root.call(api.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [], "upsertions": [user]})
    quota = {
        "entity": [{"entity_type": "user", "entity_name": "anna"}],
        "ops": [{"key": "producer_byte_rate", "value": 10.0, "remove": False}],
    }
    await root.call(api.ALTER_CLIENT_QUOTAS, 1, {"entries": [quota], "validate_only": False})
    await root.close()
    stored = list((broker.config.log_dir / "metadata").iterdir())
    assert stored
    assert not [each for each in stored if each.stat().st_mode & 0o077]
    await broker.close()
    again = await start(**SECURED)
    assert again.authorizer is not None
    assert len(again.authorizer) == 1
    assert list(again.scram_users) == ["x"]
    assert again.quotas.active
