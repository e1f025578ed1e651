"""What a template does: makes requests that a certain server takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import ClassVar, Final, Protocol
from urllib.parse import urlsplit

from consumers.connect.data.records import SinkRecord
from consumers.connect.http.answers.answer import Answer, Objection
from consumers.connect.http.templates.device_names import DeviceNames
from consumers.connect.http.templates.judging import is_web_page, not_of
from consumers.connect.http.templates.request import Request


class Template(Protocol):
    """Makes requests; it never changes, and does no input or output."""

    @property
    def batch_records(self) -> int:
        """How many records a request has if the properties do not say; 1: it can have no more."""

    def target(self, record: SinkRecord) -> Hashable:
        """Return what the records of one request must have in common; raises DataException."""

    def request(self, records: Sequence[SinkRecord]) -> Request:
        """Return a request for records; raises DataException for one that the server would not
        take.
        """

    def objection(self, answer: Answer) -> Objection | None:
        """Return why a success or a refusal is none; None if it means what its status does."""


#: A proxy may give them, too, for a server that it does not find or nobody may reach.
_ALSO_OF_PROXIES: Final = frozenset({403, 404})


class PositionTemplate(ABC):
    """A template for positions: one a request, to the same URL.

    The answer has to be one that the server gives: what a sign-in page, a page about maintenance or
    a Wi-Fi portal answers says nothing of a position.
    """

    batch_records = 1
    #: What answers, for messages.
    server: ClassVar[str]

    def __init__(self, url: str, names: DeviceNames) -> None:
        self._url: Final = url
        self._names: Final = names

    def target(self, record: SinkRecord) -> Hashable:
        """See Template."""
        return None

    @abstractmethod
    def request(self, records: Sequence[SinkRecord]) -> Request:
        """See Template."""

    def objection(self, answer: Answer) -> Objection | None:
        """See Template."""
        if answer.is_success:
            is_strange = not self.is_answer(answer)
        else:
            is_strange = answer.status in _ALSO_OF_PROXIES and is_web_page(answer)
        return not_of(self.server) if is_strange else None

    def is_answer(self, answer: Answer) -> bool:
        """Tell whether the server itself may have answered so, with a status of success."""
        return not is_web_page(answer)


def with_path(url: str, path: str) -> str:
    """Return a URL with a path, unless it has one already."""
    return url.rstrip("/") + path if urlsplit(url).path in ("", "/") else url


def with_query(url: str, query: str) -> str:
    """Return a URL with parameters after those that it has."""
    return f"{url}{'&' if '?' in url else '?'}{query}"
