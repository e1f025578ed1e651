"""KafkaJS (npm) against our broker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

_CLIENT = Path(__file__).with_name("kafkajs_client.cjs")


def test_an_application_of_kafkajs_administers_writes_and_reads(bootstrap_servers: str) -> None:
    modules = os.environ.get("WAYLOG_KAFKAJS")
    if not modules or shutil.which("node") is None:
        pytest.skip("WAYLOG_KAFKAJS names no node_modules: npm install kafkajs@2.2.4")
    done = subprocess.run(
        ["node", str(_CLIENT), bootstrap_servers, f"test-{uuid.uuid4().hex[:12]}"],
        env=os.environ | {"NODE_PATH": str(Path(modules).expanduser())},
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    values = sorted((value, colour) for value, colour in told["values"])
    assert values == [("kept", None), *((f"plain {number}", "red") for number in range(10))]
    # Ten records, one aborted, one committed, and the two control records after them.
    assert 11 <= told["committed"] <= 14
    assert told["state"] in {"Empty", "Dead"}
    assert told["policy"] == "delete"
