"""A platform for forwardings, on a broker of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.consumers.forwarding.running import Platform
from tests.consumers.running import Broker


@pytest.fixture
def platform(broker: Broker, tmp_path: Path) -> Iterator[Platform]:
    platform = Platform(broker.address, tmp_path)
    try:
        yield platform
    finally:
        platform.close()
