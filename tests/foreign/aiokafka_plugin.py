"""Lets aiokafka's own tests run against an existing broker (AIOKAFKA_BROKER=HOST:PORT).

aiokafka's fixtures start containers; this plugin replaces their values. pytest loads it in another
source tree, so it imports nothing of ours.
"""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

_docker = types.ModuleType("docker")
_docker.models = types.SimpleNamespace(  # type: ignore[attr-defined]
    containers=types.SimpleNamespace(Container=object)
)
sys.modules.setdefault("docker", _docker)


def _server() -> Any:
    host, _, port = os.environ["AIOKAFKA_BROKER"].rpartition(":")
    return types.SimpleNamespace(
        host=host,
        port=int(port),
        ssl_port=1,
        sasl_plain_port=1,
        sasl_ssl_port=1,
        container=None,
        hosts=[f"{host}:{port}"],
    )


_FIXTURES: dict[str, Any] = {
    "docker": lambda: None,
    "kafka_image": lambda: "image:4.3.0",
    "kafka_server": _server,
    "ssl_folder": lambda: Path("tests/ssl_cert"),
    "acl_manager": lambda: None,
    "kafka_config": lambda: None,
    "kerberos_utils": lambda: None,
}


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> object:
    """Return our value for a fixture that would start something; None goes on as usual."""
    make = _FIXTURES.get(fixturedef.argname)
    if make is None:
        return None
    value = make()
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return (value,)
