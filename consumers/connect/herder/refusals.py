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


class Conflict(Refused):
    """The workers are in between: the same request may succeed in a moment."""

    status = 409


class RebalanceNeeded(Conflict):
    """Work is going to be divided anew."""

    def __init__(self) -> None:
        super().__init__(
            "Cannot complete request momentarily due to stale configuration (typically caused by a "
            "concurrent config change)"
        )


class WrongWorker(Conflict):
    """Another worker has to do it; `url` is that of its REST interface, None if nobody knows."""

    def __init__(self, message: str, url: str | None) -> None:
        super().__init__(message)
        self.url = url
