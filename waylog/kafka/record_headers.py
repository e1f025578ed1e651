"""The headers of a record that anybody may have written."""

from __future__ import annotations

from collections.abc import Sequence
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
        _empty(record)
        return []


def headers_of_all(records: Sequence[RecordWithHeaders]) -> list[list[tuple[str, Any]] | None]:
    """Return the headers of each record as `headers_of` does, None for most that have none.

    A call for many records costs less than one for each.
    """
    found: list[list[tuple[str, Any]] | None] = []
    reading = map(_headers, records)
    while True:
        try:
            # Not `extend`: the length has to tell which record was the last one.
            for headers in reading:
                found.append(headers)
        except SystemError:
            _empty(records[len(found)])
            found.append([])
        else:
            return found


def _empty(record: Any) -> None:
    # It keeps the list with the hole, and would hand it out when it is asked again.
    record.set_headers([])
