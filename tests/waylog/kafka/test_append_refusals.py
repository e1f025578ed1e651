"""The words for what a log answers to appends."""

from __future__ import annotations

import pytest

from waylog.kafka.append_refusals import AppendRefusals
from waylog.kafka.protocol.error_codes import ErrorCode

FEW = "fewer replicas are in sync than min.insync.replicas asks for"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, "its disk may be full"),
        (ErrorCode.NOT_ENOUGH_REPLICAS, FEW),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, FEW),
    ],
)
def test_refusals_that_last_are_told_by_their_cause_until_they_end(
    code: ErrorCode, words: str
) -> None:
    refusals = AppendRefusals()
    refusals.refused(code, 10.0)
    assert refusals.reason(10.5) is None
    refusals.refused(code, 11.2)
    assert words in str(refusals.reason(11.2))
    assert ("disk" in str(refusals.reason(11.2))) == ("disk" in words)
    assert refusals.disk_refuses(11.2) == ("disk" in words)
    assert refusals.reason(14.5) is None
    refusals.refused(code, 20.0)
    assert refusals.reason(20.5) is None
    refusals.refused(code, 21.5)
    refusals.stored()
    assert refusals.reason(21.6) is None


def test_replicas_that_are_late_are_told_at_once_and_until_the_next_answer() -> None:
    refusals = AppendRefusals()
    refusals.refused(ErrorCode.REQUEST_TIMED_OUT, 10.0)
    for now in (10.0, 20.0):
        assert "its replicas do not follow" in str(refusals.reason(now))
        assert not refusals.disk_refuses(now)
    refusals.refused(ErrorCode.REQUEST_TIMED_OUT, 20.1)
    assert refusals.reason(30.0) is not None
    refusals.stored()
    assert refusals.reason(30.0) is None


def test_a_change_of_leaders_is_no_trouble() -> None:
    refusals = AppendRefusals()
    for now in range(10):
        refusals.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, float(now))
    assert refusals.reason(10.0) is None
