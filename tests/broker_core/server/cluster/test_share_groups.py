from __future__ import annotations

from collections.abc import Awaitable, Callable

from broker_core.protocol.definitions import API_VERSIONS, SHARE_GROUP_DESCRIBE
from broker_core.server.runtime import Broker
from tests.broker_core.server.cluster.conftest import Trio
from tests.broker_core.server.raw_client import RawClient


async def test_a_cluster_offers_no_share_groups(
    trio: Trio, connect: Callable[[Broker], Awaitable[RawClient]]
) -> None:
    client = await connect(trio.brokers[1])
    answer = await client.call(API_VERSIONS, 0, {})
    assert not {each["api_key"] for each in answer["api_keys"]} & {76, 77, 78, 79, 90, 91, 92}
    # Who asks all the same is not served.
    body = {"group_ids": ["g"], "include_authorized_operations": False}
    client.send(SHARE_GROUP_DESCRIBE, 1, body)
    assert await client.is_closed_by_peer()
