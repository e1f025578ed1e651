"""Requests that are refused, with the status and the message that Kafka Connect's REST answers."""

from __future__ import annotations

from typing import ClassVar

from consumers.connect.data.exceptions import ConnectException


class Refused(ConnectException):
    """A request is refused; `status` is that of HTTP."""

    status: ClassVar[int] = 500


class BadRequest(Refused):
    """The request is not valid."""

    status = 400


class NotFound(Refused):
    """There is no such connector, task, plugin or logger."""

    status = 404
    kafka_name = "org.apache.kafka.connect.errors.NotFoundException"


class AlreadyExists(Refused):
    """There is such a connector already."""

    status = 409
    kafka_name = "org.apache.kafka.connect.errors.AlreadyExistsException"


class Forbidden(Refused):
    """The worker does not serve this."""

    status = 403
