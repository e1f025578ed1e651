"""Errors of Kafka clients as text."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from waylog.kafka.clients import LogUnreachable
from waylog.kafka.errors import error_text, not_stored_text


def test_a_refusal_is_a_sentence_without_the_names_of_classes() -> None:
    refusal = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Not authorized to access topics")
    assert "KafkaError{" in str(KafkaException(refusal))
    assert error_text(KafkaException(refusal)) == "Not authorized to access topics"
    unknown = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    assert error_text(unknown) == "Unknown topic or partition"
    assert error_text(LogUnreachable("no broker answered")) == "no broker answered"


def test_a_message_that_ends_with_nothing_is_completed_by_its_code() -> None:
    quoted = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "FindCoordinator response error: ")
    assert error_text(KafkaException(quoted)) == (
        "FindCoordinator response error: Group authorization failed"
    )


def test_what_is_not_stored_for_a_missing_right_names_the_topic_and_the_right() -> None:
    for code in (
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    ):
        for error in (KafkaError(code), KafkaException(KafkaError(code))):
            assert not_stored_text(error, "location") == (
                "topic location is forbidden: the user as whom this client logs in needs the "
                "right WRITE on it"
            )
    late = KafkaError(KafkaError._MSG_TIMED_OUT)
    assert not_stored_text(late, "location") == error_text(KafkaException(late))
