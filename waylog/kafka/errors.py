"""Turns errors of Kafka clients into text for people."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException


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
