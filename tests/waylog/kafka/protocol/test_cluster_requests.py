"""Requests about a cluster are those of the protocol, and answers are read as they are meant."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.protocol.definitions import (
    ALTER_PARTITION_REASSIGNMENTS,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_QUORUM,
    ELECT_LEADERS,
    LIST_GROUPS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
)
from broker_core.protocol.encoder import encode_response_frame
from broker_core.protocol.schema import AnyApi
from tests.broker_core.server.raw_client import request_frame
from waylog.kafka.protocol import cluster_requests, requests
from waylog.kafka.protocol.cluster_requests import (
    ClusterBroker,
    LogDirectory,
    Members,
    Moving,
    Outcome,
    PartitionState,
    Quorum,
    QuorumReplica,
)
from waylog.kafka.protocol.requests import Broker, MalformedAnswer

MOVES = {("trips", 0): [2, 3], ("trips", 1): None, ("x" * 200, 300): [1] * 140}


@pytest.mark.parametrize(
    ("api", "version", "parts", "body"),
    [
        (METADATA, 7, cluster_requests.all_partitions(), {"topics": None}),
        (
            DESCRIBE_CLUSTER, 0, cluster_requests.describe_cluster(),
            {"include_cluster_authorized_operations": False},
        ),
        (
            ELECT_LEADERS, 1, cluster_requests.elect_leaders(0, None, 5000),
            {"election_type": 0, "topic_partitions": None, "timeout_ms": 5000},
        ),
        (
            ELECT_LEADERS, 1, cluster_requests.elect_leaders(1, [("t", 2), ("t", 3)], 5000),
            {
                "election_type": 1,
                "topic_partitions": [{"topic": "t", "partitions": [2, 3]}],
                "timeout_ms": 5000,
            },
        ),
        (
            ALTER_PARTITION_REASSIGNMENTS, 0, cluster_requests.alter_reassignments(MOVES, 7000),
            {
                "timeout_ms": 7000,
                "topics": [
                    {
                        "name": "trips",
                        "partitions": [
                            {"partition_index": 0, "replicas": [2, 3]},
                            {"partition_index": 1, "replicas": None},
                        ],
                    },
                    {
                        "name": "x" * 200,
                        "partitions": [{"partition_index": 300, "replicas": [1] * 140}],
                    },
                ],
            },
        ),
        (
            LIST_PARTITION_REASSIGNMENTS, 0, cluster_requests.list_reassignments(7000),
            {"timeout_ms": 7000, "topics": None},
        ),
        (
            DESCRIBE_QUORUM, 1, cluster_requests.describe_quorum(),
            {
                "topics": [
                    {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
                ]
            },
        ),
        (
            LIST_GROUPS, 5, cluster_requests.list_share_groups(),
            {"states_filter": [], "types_filter": ["share"]},
        ),
        (DESCRIBE_LOG_DIRS, 4, cluster_requests.describe_log_dirs(), {"topics": None}),
    ],
)  # fmt: skip
def test_a_request_is_what_another_client_would_send(
    api: AnyApi, version: int, parts: Sequence[bytes], body: dict[str, Any]
) -> None:
    # allow_auto_topic_creation of Metadata is the only field whose default is not what is sent.
    body = body | ({"allow_auto_topic_creation": False} if api is METADATA else {})
    assert requests.request(api.key, 1, b"test", parts) == request_frame(api, version, body)


REPLICA = {"replica_id": 3, "log_end_offset": 70, "last_fetch_timestamp": 5}


@pytest.mark.parametrize(
    ("api", "version", "read", "body", "expected"),
    [
        (
            METADATA, 7, cluster_requests.read_all_partitions,
            {
                "brokers": [{"node_id": 1, "host": "a", "port": 9, "rack": None}],
                "cluster_id": "c",
                "controller_id": 1,
                "topics": [
                    {
                        "error_code": 0,
                        "name": "t",
                        "is_internal": False,
                        "partitions": [
                            {
                                "error_code": 0, "partition_index": 4, "leader_id": 1,
                                "leader_epoch": 2, "replica_nodes": [1, 2], "isr_nodes": [1],
                                "offline_replicas": [2],
                            }
                        ],
                    }
                ],
            },
            {("t", 4): PartitionState(1, [1, 2], [1])},
        ),
        (
            DESCRIBE_CLUSTER, 0, cluster_requests.read_describe_cluster,
            {
                "error_code": 0,
                "error_message": None,
                "cluster_id": "c",
                "controller_id": 1,
                "brokers": [{"broker_id": 1, "host": "a", "port": 9, "rack": "r"}],
                "cluster_authorized_operations": 0,
            },
            (0, "", Members("c", 1, {1: ClusterBroker(Broker("a", 9), "r")})),
        ),
        (
            ELECT_LEADERS, 1, cluster_requests.read_elect_leaders,
            {
                "error_code": 41,
                "replica_election_results": [
                    {
                        "topic": "t",
                        "partition_result": [
                            {"partition_id": 1, "error_code": 84, "error_message": "no need"}
                        ],
                    }
                ],
            },
            (41, "", {("t", 1): Outcome(84, "no need")}),
        ),
        (
            ALTER_PARTITION_REASSIGNMENTS, 0, cluster_requests.read_alter_reassignments,
            {
                "error_code": 0,
                "error_message": None,
                "responses": [
                    {
                        "name": "t",
                        "partitions": [
                            {"partition_index": 1, "error_code": 39, "error_message": "no"}
                        ],
                    }
                ],
            },
            (0, "", {("t", 1): Outcome(39, "no")}),
        ),
        (
            LIST_PARTITION_REASSIGNMENTS, 0, cluster_requests.read_list_reassignments,
            {
                "error_code": 0,
                "error_message": "text",
                "topics": [
                    {
                        "name": "t",
                        "partitions": [
                            {
                                "partition_index": 1, "replicas": [1, 2, 3],
                                "adding_replicas": [3], "removing_replicas": [],
                            }
                        ],
                    }
                ],
            },
            (0, "text", {("t", 1): Moving([1, 2, 3], [3], [])}),
        ),
        (
            DESCRIBE_QUORUM, 1, cluster_requests.read_describe_quorum,
            {
                "error_code": 0,
                "topics": [
                    {
                        "topic_name": "__cluster_metadata",
                        "partitions": [
                            {
                                "partition_index": 0, "error_code": 0, "leader_id": 3,
                                "leader_epoch": 8, "high_watermark": 60,
                                "current_voters": [REPLICA], "observers": [],
                            }
                        ],
                    }
                ],
            },
            (0, "", Quorum(3, 8, 60, [QuorumReplica(3, 70, 5)], [])),
        ),
        (
            LIST_GROUPS, 5, cluster_requests.read_list_groups,
            {
                "error_code": 0,
                "groups": [
                    {
                        "group_id": "g", "protocol_type": "share", "group_state": "Stable",
                        "group_type": "share",
                    }
                ],
            },
            (0, "", {"g": "Stable"}),
        ),
        (
            DESCRIBE_LOG_DIRS, 4, cluster_requests.read_describe_log_dirs,
            {
                "error_code": 31,
                "results": [
                    {
                        "error_code": 57, "log_dir": "/logs",
                        "topics": [
                            {
                                "name": "t",
                                "partitions": [
                                    {
                                        "partition_index": 1, "partition_size": 7,
                                        "offset_lag": 2, "is_future_key": False,
                                    }
                                ],
                            }
                        ],
                        "total_bytes": 90, "usable_bytes": 80,
                    }
                ],
            },
            (31, "", [LogDirectory("/logs", 57, {("t", 1): 7}, 90, 80)]),
        ),
    ],
)  # fmt: skip
def test_an_answer_is_read_as_a_broker_writes_it(
    api: AnyApi, version: int, read: Callable[[bytes], Any], body: dict[str, Any], expected: Any
) -> None:
    flexible = api.is_flexible(version)
    frame = encode_response_frame(api.response_plan(version), 1, flexible, body)
    data = b"".join(map(bytes, frame))[8:]
    assert read(data) == expected
    # The last byte has no tagged fields, which nobody reads.
    for cut in range(len(data) - flexible):
        with pytest.raises(MalformedAnswer):
            read(data[:cut])


@given(st.binary(max_size=120))
def test_whatever_comes_is_read_or_refused(data: bytes) -> None:
    for read in (
        cluster_requests.read_all_partitions,
        cluster_requests.read_describe_cluster,
        cluster_requests.read_elect_leaders,
        cluster_requests.read_alter_reassignments,
        cluster_requests.read_list_reassignments,
        cluster_requests.read_describe_quorum,
        cluster_requests.read_list_groups,
        cluster_requests.read_describe_log_dirs,
    ):
        with contextlib.suppress(MalformedAnswer):
            read(data)
