"""Errors of Kafka clients as text."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from waylog.kafka.clients import LogUnreachable
from waylog.kafka.errors import error_text


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
