"""A batch has the same effect on Locust's entries as single calls of its own `log`.

Locust patches the interpreter when it is imported (gevent), so this runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from locust.env import Environment
from locust.stats import StatsEntry, RequestStats
from load_tests.locust_statistics import add_batch, add_failures

one_by_one, batched = Environment(), Environment()
pairs = [(250, 3), (1_500, 2), (123_456, 4), (2_345_678, 1)]
for microseconds, count in pairs:
    for _ in range(count):
        one_by_one.stats.log_request("MQTT", "ack", microseconds / 1000, 10)
add_batch(batched, "MQTT", "ack", pairs, 10.0)
add_batch(batched, "MQTT", "ack", [])
for entry in (lambda stats: stats.total, lambda stats: stats.get("ack", "MQTT")):
    expected, found = entry(one_by_one.stats), entry(batched.stats)
    for name in ("num_requests", "min_response_time", "max_response_time", "total_content_length"):
        assert getattr(found, name) == getattr(expected, name), name
    assert abs(found.total_response_time - expected.total_response_time) < 1e-6
    assert dict(found.response_times) == dict(expected.response_times)
    assert sum(found.num_reqs_per_sec.values()) == 10
    # What a worker sends to its master is made of this.
    copy = StatsEntry.unserialize(found.get_stripped_report(), RequestStats())
    assert copy.num_requests == 10

seen = []
batched.events.request.add_listener(lambda **arguments: seen.append(arguments["exception"]))
add_failures(batched, "MQTT", "connect", "no route", 3)
assert [str(each) for each in seen] == ["no route"] * 3
"""


def test_a_batch_counts_like_its_requests_one_by_one() -> None:
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
