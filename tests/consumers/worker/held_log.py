"""A log that is reached directly, or by a proxy that can hold back what clients ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker_core.protocol import definitions as api
from tests.apache_kafka import apache_kafka
from tests.broker_core.server.raw_client import RawClient
from tests.consumers.worker.holding_proxy import HoldingProxy
from tests.contract.broker_process import BrokerProcess
from tests.ports import reserved_ports
from waylog.config import parse_endpoint

#: Our broker, and Apache Kafka (-m kafka).
KINDS = ("waylog", pytest.param("apache-kafka", marks=pytest.mark.kafka))


@contextmanager
def held_log(kind: str, folder: Path, **more: str) -> Iterator[tuple[str, str, HoldingProxy]]:
    """Run one; yield the bootstrap servers for both ways, and the proxy.

    `more` are settings of either kind of broker, with `_` for Kafka's dots.
    """
    direct, target, port = reserved_ports(3)
    through = {
        "listener_security_protocol_map": "HELD:PLAINTEXT",
        "listeners": f"HELD://127.0.0.1:{target}",
        "advertised_listeners": f"HELD://127.0.0.1:{port}",
    }
    with HoldingProxy(port, target) as proxy:
        if kind == "apache-kafka":
            # Transactions that take too long are looked for this often.
            more["transaction_abort_timed_out_transaction_cleanup_interval_ms"] = "1000"
            with apache_kafka(more=through | more) as servers:
                yield servers, f"127.0.0.1:{port}", proxy
            return
        plain = f"PLAINTEXT://127.0.0.1:{direct}"
        broker = BrokerProcess(
            folder,
            listener_security_protocol_map="HELD:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            listeners=f"{plain},{through['listeners']}",
            advertised_listeners=f"{plain},{through['advertised_listeners']}",
            **more,
        )
        broker.start()
        try:
            yield f"127.0.0.1:{direct}", f"127.0.0.1:{port}", proxy
        finally:
            broker.stop()


def members_of(servers: str, group: str) -> list[str]:
    """Return the ids of a group's members."""

    async def ask() -> list[str]:
        client = await RawClient.connect(parse_endpoint(servers))
        answer = await client.call(api.DESCRIBE_GROUPS, 0, {"groups": [group]})
        await client.close()
        return [each["member_id"] for each in answer["groups"][0]["members"]]

    return asyncio.run(ask())


def put_member_out(servers: str, group: str) -> None:
    """Put the only member out of a group, which it learns with its next heartbeat."""

    async def leave(member: str) -> int:
        client = await RawClient.connect(parse_endpoint(servers))
        body = {"group_id": group, "members": [{"member_id": member}]}
        answer = await client.call(api.LEAVE_GROUP, 3, body)
        await client.close()
        return int(answer["error_code"])

    [member] = members_of(servers, group)
    assert asyncio.run(leave(member)) == 0
