"""What Kafka's clients raise, in words for people."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException


def said_by(error: BaseException) -> str:
    """The reason that librdkafka or a broker gives, as a sentence without names of classes.

    The text of a KafkaException is the representation of an object. Of any other exception it is
    that exception's text.
    """
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if isinstance(cause, KafkaError):
        return (cause.str() or cause.name()).removeprefix("Broker: ").removeprefix("Local: ")
    return str(cause)
