"""What goes wrong in Connect. `kafka_name` is the Java class that Kafka Connect would report.

Dead letters name that class (`__connect.errors.exception.class.name`), so that what reads them
today goes on doing so.
"""

from __future__ import annotations

from typing import ClassVar


class ConnectException(Exception):
    """Something in Connect, or in a connector, has failed."""

    kafka_name: ClassVar[str] = "org.apache.kafka.connect.errors.ConnectException"


class RetriableException(ConnectException):
    """The same operation may succeed later."""

    kafka_name: ClassVar[str] = "org.apache.kafka.connect.errors.RetriableException"


class DataException(ConnectException):
    """A value does not have the form that its schema, a converter or a transform asks for."""

    kafka_name: ClassVar[str] = "org.apache.kafka.connect.errors.DataException"


class SchemaException(DataException):
    """A schema cannot be made this way."""

    kafka_name: ClassVar[str] = "org.apache.kafka.connect.errors.SchemaBuilderException"


def kafka_name_of(error: BaseException) -> str:
    """Return the name of an error's class: Kafka's where it has one, else Python's."""
    named = getattr(type(error), "kafka_name", None)
    if isinstance(named, str):
        return named
    return f"{type(error).__module__}.{type(error).__qualname__}"
