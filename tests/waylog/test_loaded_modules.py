"""Processes load only what they use: large libraries cost 0.1 s of each start, and memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

OF_JOBS = ("numpy", "pandas", "pyarrow", "pyspark", "duckdb", "shapely")


@pytest.mark.parametrize(
    ("module", "others"),
    [
        ("gateway.command", ("aiohttp",)),
        ("gateway.process.gateway_process", ("ctypes",)),
        ("gateway.process.mqtt_worker_process", ()),
        ("gateway.bodies.parsing_process", ("aiohttp", "argon2", "sqlite3")),
        ("waylog.process.helper_process", ("aiohttp", "msgspec")),
        ("broker_core.server.runtime", ("aiohttp", "confluent_kafka")),
        ("consumers.resolver.resolver", ("aiohttp",)),
        ("consumers.connect.command", ("aiohttp", "confluent_kafka")),
        ("consumers.connect.worker.standalone", ("aiohttp",)),
        ("waylog.supervision.up", ("aiohttp",)),
        ("waylog.console.topics", ("aiohttp", "kafka", "ctypes")),
        ("spark", ("asyncio",)),
        ("spark.history.command", ("confluent_kafka", "asyncio")),
    ],
)
def test_a_process_that_serves_loads_no_library_of_jobs(
    module: str, others: tuple[str, ...]
) -> None:
    code = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {*OF_JOBS, *others} & set(done.stdout.split()) == set()
