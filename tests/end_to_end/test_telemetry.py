"""Telemetry of the platform arrives in its topics, without secrets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.consumers.running import await_condition
from tests.end_to_end.running import Platform
from tests.end_to_end.test_hostile_input import assert_serves


def values(platform: Platform, topic: str) -> list[dict[str, Any]]:
    printed = platform.waylog(
        "consume", topic, "--from", "beginning", "--exit", "--bootstrap-servers", platform.kafka
    )
    return [json.loads(line) for line in printed.splitlines()]


def test_interceptors_and_log_handler_feed_their_topics(
    platform_starter: Callable[..., Platform],
) -> None:
    platform = platform_starter("--no-history")
    assert_serves(platform, "phone")

    def methods(topic: str) -> set[str]:
        return {each["method"] for each in values(platform, topic)}

    submit = "Submitter.submit_location"
    await_condition(lambda: submit in methods("performance"), 90, "a record in `performance`")
    await_condition(lambda: submit in methods("parameter"), 90, "a record in `parameter`")
    await_condition(lambda: values(platform, "log"), 90, "a record in `log`")

    durations = [each for each in values(platform, "performance") if each["method"] == submit]
    assert durations[0]["duration_ms"] > 0
    (parameters,) = [each for each in values(platform, "parameter") if each["method"] == submit]
    assert parameters["arguments"]["fix"]["device"] == "demo/phone"
    assert {"time", "level", "logger", "message", "process"} <= values(platform, "log")[0].keys()
    assert platform.demo_token not in str([values(platform, each) for each in ("log", "parameter")])
