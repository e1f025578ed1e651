from __future__ import annotations

import pytest

from broker_core.errors import InvalidConfig
from broker_core.log.config import LogConfig
from broker_core.replication.throttle import ReplicationQuota, is_throttled


def test_without_a_rate_nobody_waits() -> None:
    quota = ReplicationQuota()
    quota.record(10**12, 1.0)
    assert quota.wait_s(1.0) == 0


def test_what_is_taken_keeps_to_the_rate() -> None:
    quota = ReplicationQuota()
    quota.rate = 1000
    now, taken = 5.0, 0
    while now < 15.0:
        wait_s = quota.wait_s(now)
        if wait_s:
            now += wait_s
        else:
            quota.record(300, now)
            taken += 300
            now += 0.001
    # The allowance of one second may accumulate, and the last transfer may exceed the limit.
    assert 10_000 <= taken <= 11_600


def test_a_rate_of_nothing_stops_all() -> None:
    quota = ReplicationQuota()
    quota.rate = 0
    assert quota.wait_s(1.0) > 0
    assert quota.wait_s(100.0) > 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", False), ("*", True), ("3:1", True), ("3:2,4:1", False), (" 4:2 , 3:1 ", True)],
)
def test_a_setting_names_replicas(text: str, expected: bool) -> None:
    config = LogConfig.from_properties({"leader.replication.throttled.replicas": text})
    assert is_throttled(config.leader_replication_throttled_replicas, 3, 1) is expected


@pytest.mark.parametrize("text", ["1", "a:b", "1:2;3:4", "1:2 3:4", "**"])
def test_what_names_no_replicas_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="PARTITION:BROKER"):
        LogConfig.from_properties({"follower.replication.throttled.replicas": text})
