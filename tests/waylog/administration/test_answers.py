"""Questions to a cluster that are asked again."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from waylog.administration.answers import answer_to
from waylog.administration.log_access import LogAccess


class Cluster:
    """A cluster that refuses before it answers."""

    def __init__(self, *refusals: int) -> None:
        self.refusals = list(refusals)
        self.asked = 0

    def ask(self, seconds: float) -> str:
        self.asked += 1
        if self.refusals:
            raise KafkaException(KafkaError(self.refusals.pop(0)))
        return f"within {seconds:g} s"


@pytest.fixture
def access() -> LogAccess:
    return LogAccess("127.0.0.1:9")


@pytest.mark.parametrize(
    "code",
    [
        *(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE),
        *(KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE),
    ],
)
def test_a_leader_that_was_just_elected_is_asked_again(access: LogAccess, code: int) -> None:
    cluster = Cluster(code, code)
    assert answer_to(access, cluster.ask).startswith("within")
    assert cluster.asked == 3


def test_what_does_not_pass_is_told_at_once(access: LogAccess) -> None:
    cluster = Cluster(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException) as raised:
        answer_to(access, cluster.ask)
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert cluster.asked == 1
