"""The headers of a record that anybody may have written."""

from __future__ import annotations

from operator import methodcaller
from typing import Any, Final, Protocol


class RecordWithHeaders(Protocol):
    """The one method of a client's record that is used here; confluent_kafka.Message has it."""

    def headers(self) -> Any: ...


# Kafka's format leaves the bytes of a header's name to its writer. For a name that is not UTF-8
# confluent_kafka sets an exception and returns a list with a hole all the same. A plain call of its
# method may hand that list out, and whoever looks into it reads the address 0. This way of calling
# always notices the exception, and raises SystemError.
_headers: Final = methodcaller("headers")


def headers_of(record: RecordWithHeaders) -> list[tuple[str, Any]]:
    """Return the headers as pairs of name and value; none if the name of one is not UTF-8."""
    try:
        return _headers(record) or []
    except SystemError:
        # The record keeps that list, and would hand it out when it is asked again.
        spoiled: Any = record
        spoiled.set_headers([])
        return []
