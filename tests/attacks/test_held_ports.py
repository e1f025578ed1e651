"""A program of another account waits for the ports of a platform whose processes die."""

from __future__ import annotations

import base64
import re
import urllib.request
from pathlib import Path

from tests.attacks.strangers import STRANGER, Squatter, needs_root
from tests.end_to_end.running import start_platform


@needs_root
def test_no_port_of_a_platform_is_free_while_its_process_is_down(tmp_path: Path) -> None:
    platform = start_platform(tmp_path / "data", "--no-history")
    try:
        words = " ".join(" ".join(each["argv"]) for each in platform.processes().values())
        properties = next(tmp_path.glob("data/broker/*/server.properties")).read_text()
        ports = sorted(
            {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", words + properties)}
        )
        assert len(ports) == 5  # HTTP, MQTT, Kafka, metrics, geocoder
        with Squatter(STRANGER, ports) as squatter:
            for name in platform.processes():
                platform.kill(name)
            assert squatter.stop() == []
        request = urllib.request.Request(
            f"{platform.url}/v1/positions", b'{"device": "phone", "lat": 47.14, "lon": 9.52}'
        )
        request.add_header("Content-Type", "application/json")
        login = base64.b64encode(f"demo:{platform.demo_token}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200
    finally:
        platform.stop()
