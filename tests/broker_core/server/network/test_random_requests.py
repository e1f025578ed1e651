"""Well-formed requests with random content: none of them causes an exception."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from broker_core.protocol.definitions import APIS, PRODUCE
from broker_core.server.runtime import Broker
from tests.broker_core.protocol.test_definitions import Generator
from tests.broker_core.server.raw_client import RawClient
from tests.broker_core.server.topics import create_topic

Start = Callable[..., Awaitable[Broker]]

_PROPERTIES = {
    "everybody may": {},
    "rules decide": {
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    },
}
#: Seconds to wait for an answer: some requests are answered later, or not at all.
_PATIENCE_S = 0.05


@pytest.mark.parametrize("properties", list(_PROPERTIES))
async def test_random_requests_of_every_api_never_fail_inside(
    start: Start, properties: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start(**_PROPERTIES[properties])
    for topic in ("a", "b"):
        create_topic(broker, topic, 2, {})
    caplog.set_level(logging.ERROR)
    for key, api in sorted(APIS.items()):
        for version in range(api.versions[0], api.versions[1] + 1):
            for seed in range(2):
                body = Generator(f"{key}-{version}-{seed}").message(api.request_plan(version))
                if key == PRODUCE.key:
                    body["acks"] = -1
                client = await RawClient.connect(broker.endpoint)
                client.send(api, version, body)
                with suppress(TimeoutError, ConnectionError):
                    await asyncio.wait_for(client.reader.read(1), _PATIENCE_S)
                await client.close()
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
