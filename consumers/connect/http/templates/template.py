"""What a template does: makes requests that a certain server takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Final, Protocol
from urllib.parse import urlsplit

from consumers.connect.data.records import SinkRecord
from consumers.connect.http.templates.device_names import DeviceNames
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

    def refusal(self, body: bytes) -> str | None:
        """Return why an answer with success is none; None if it is one."""


class PositionTemplate(ABC):
    """A template for positions: one a request, to the same URL, and success is success."""

    batch_records = 1

    def __init__(self, url: str, names: DeviceNames) -> None:
        self._url: Final = url
        self._names: Final = names

    def target(self, record: SinkRecord) -> Hashable:
        """See Template."""
        return None

    @abstractmethod
    def request(self, records: Sequence[SinkRecord]) -> Request:
        """See Template."""

    def refusal(self, body: bytes) -> str | None:
        """See Template."""
        return None


def with_path(url: str, path: str) -> str:
    """Return a URL with a path, unless it has one already."""
    return url.rstrip("/") + path if urlsplit(url).path in ("", "/") else url


def with_query(url: str, query: str) -> str:
    """Return a URL with parameters after those that it has."""
    return f"{url}{'&' if '?' in url else '?'}{query}"
