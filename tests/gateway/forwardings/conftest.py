"""A gateway that takes forwardings, on a real log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.consumers.running import Broker
from tests.gateway.running import Gateway
from waylog.forwarding.keys import FORWARDING_KEY

PATH = "/v1/forwardings"
HOOK = {
    "name": "my hook",
    "kind": "webhook",
    "url": "https://hook.example.org/path-secret",
    "token": "bearer-secret",
    "signing_secret": "hmac-secret-of-24-bytes-or-more",
}


@pytest.fixture(scope="package")
def gateway(
    gateway_broker: Broker, key_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FORWARDING_KEY, str(key_file))
        gateway = Gateway(tmp_path_factory.mktemp("forwardings"), gateway_broker.address)
    try:
        yield gateway
    finally:
        gateway.close()
