"""What errors of Kafka clients mean, and their text for people."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

#: What errors of missing rights are about.
_FORBIDDEN: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
}


def is_purged(error: KafkaError) -> bool:
    """Tell whether a record was given up because of something else, which another error tells.

    librdkafka gives up what is queued when a transaction must be aborted, and at a purge.
    """
    return error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


def error_text(error: BaseException) -> str:
    """Return the reason that librdkafka or a broker gives, as a sentence without class names.

    The text of a KafkaException would be the representation of an object. For any other exception
    this is the exception's text.
    """
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if isinstance(cause, KafkaError):
        text = cause.str() or cause.name()
        if text.endswith(": "):
            # librdkafka quotes a broker's message, which may be empty.
            text += KafkaError(cause.code()).str()
        return text.removeprefix("Broker: ").removeprefix("Local: ").replace(": Broker: ", ": ")
    return str(cause)


def forbidden_kind(error: BaseException | KafkaError | None) -> str | None:
    """Return on what the client's user lacks a right: `topic`, `group`, ...; None if not so."""
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else error
    return _FORBIDDEN.get(cause.code()) if isinstance(cause, KafkaError) else None


def forbidden_text(resource: str, right: str) -> str:
    """Return a sentence about a missing right, for example READ on `topic location`."""
    return (
        f"{resource} is forbidden: the user as whom this client logs in needs the right {right} "
        "on it"
    )


def not_stored_text(error: KafkaError | KafkaException, topic: str) -> str:
    """Return why a producer did not store a record.

    For a missing right a producer with idempotence blames the cluster, and never names the topic.
    """
    if forbidden_kind(error) is None:
        return error_text(KafkaException(error) if isinstance(error, KafkaError) else error)
    return forbidden_text(f"topic {topic}", "WRITE")
