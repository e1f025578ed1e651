"""Requests are given back as soon as they are answered, not when the garbage collector runs."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.compression import Compression
from broker_core.protocol.crc32c import crc32c
from broker_core.protocol.definitions import (
    ALTER_USER_SCRAM_CREDENTIALS,
    CREATE_TOPICS,
    METADATA,
    PRODUCE,
)
from broker_core.protocol.schema import AnyApi
from broker_core.server.network.request import Request
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient, produce_body
from tests.broker_core.server.topics import create_topic

Connect = Callable[[Broker], Awaitable[RawClient]]

_RECORDS = bytes(build_batch([(1000, b"k", b"v" * 1000, ())]))


def _without_key(value_bytes: int) -> bytes:
    rows = [(1000, None, b"v" * value_bytes, ())]
    return bytes(build_batch(rows, compression=Compression.LZ4))


def _damaged(batch: bytes) -> bytes:
    """Return a batch whose records cannot be expanded, with the right checksum."""
    damaged = bytearray(batch)
    damaged[-8:] = b"\xff" * 8
    damaged[17:21] = crc32c(damaged[21:]).to_bytes(4, "big")
    return bytes(damaged)


#: Sizes that are expanded on the event loop, and by a thread.
_SMALL = 1_000
_LARGE = 100_000
_BAD_TOPIC = {
    "name": "bad name",
    "num_partitions": 1,
    "replication_factor": 1,
    "assignments": [],
    "configs": [],
}


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Keep the garbage collector from running."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def requests() -> int:
    """Count the requests in memory."""
    return sum(isinstance(each, Request) for each in gc.get_objects())


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        (PRODUCE, 8, produce_body("nosuch", _RECORDS)),
        (PRODUCE, 8, produce_body("t", _RECORDS, acks=5)),
        (PRODUCE, 8, produce_body("t", _RECORDS, partition=9)),
        (PRODUCE, 8, produce_body("t", _RECORDS[:-1] + b"x")),
        (PRODUCE, 8, produce_body("compacted", _without_key(_SMALL))),
        (PRODUCE, 8, produce_body("compacted", _without_key(_LARGE))),
        (PRODUCE, 8, produce_body("compacted", _damaged(_without_key(_SMALL)))),
        (PRODUCE, 8, produce_body("compacted", _damaged(_without_key(_LARGE)))),
        (CREATE_TOPICS, 5, {"topics": [_BAD_TOPIC], "timeout_ms": 1, "validate_only": False}),
        (
            ALTER_USER_SCRAM_CREDENTIALS,
            0,
            {"deletions": [{"name": "u", "mechanism": 9}], "upsertions": []},
        ),
    ],
    ids=[
        "unknown topic",
        "acks",
        "unknown partition",
        "checksum",
        "no key",
        "no key in many bytes",
        "damaged",
        "damaged and long",
        "topic name",
        "mechanism",
    ],
)
async def test_a_refused_request_is_given_back(
    broker: Broker,
    connect: Connect,
    no_collector: None,
    api: AnyApi,
    version: int,
    body: dict[str, Any],
) -> None:
    create_topic(broker, "t", 1, {})
    create_topic(broker, "compacted", 1, {"cleanup.policy": "compact"})
    client = await connect(broker)
    before = requests()
    for _ in range(20):
        await client.call(api, version, body)
    # The connection may still hold the last one.
    assert requests() <= before + 1


async def test_a_request_whose_answer_is_amended_is_given_back(
    start: Callable[..., Awaitable[Broker]], connect: Connect, no_collector: None
) -> None:
    properties = {
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": "User:ANONYMOUS",
    }
    client = await connect(await start(**properties))
    before = requests()
    for _ in range(20):
        await client.call(METADATA, 4, {"topics": [{"name": "nosuch"}]})
    assert requests() <= before + 1
