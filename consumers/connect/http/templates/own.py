"""A request as the properties describe it: `url`, `method` and `body.template`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from consumers.connect.data.json_text import message_bytes
from consumers.connect.data.records import SinkRecord
from consumers.connect.http.answers.answer import Answer, Objection
from consumers.connect.http.templates.placeholders import (
    TextTemplate,
    Write,
    fields_of,
    percent_encoded,
    plain_text,
)
from consumers.connect.http.templates.request import Request
from consumers.connect.http.templates.url_template import UrlTemplate

_WITHOUT_BODY: Final = frozenset({"GET", "DELETE"})
_FORM: Final = "application/x-www-form-urlencoded"


class BatchForm(NamedTuple):
    """What is around and between the bodies of several records."""

    prefix: str = "["
    separator: str = ","
    suffix: str = "]"


class OwnTemplate:
    """Fills the placeholders of the properties."""

    batch_records = 1

    def __init__(
        self, method: str, url: str, body: str | None, content_type: str, batch: BatchForm | None
    ) -> None:
        """`batch` is None for one record a request. Raises ConfigException."""
        self._method: Final = method
        self._url: Final = UrlTemplate(url)
        write: Write | None = plain_text
        if content_type.startswith(_FORM):
            write = percent_encoded
        elif "json" in content_type:
            write = None
        self._body: Final = None if body is None else TextTemplate("body.template", body, write)
        self._has_body: Final = method not in _WITHOUT_BODY or body is not None
        self._headers: Final = {"Content-Type": content_type} if self._has_body else {}
        self._batch: Final = batch

    @property
    def url_fields(self) -> list[str]:
        """The fields of values that fill the URL, as they are written."""
        return self._url.fields

    def target(self, record: SinkRecord) -> Hashable:
        """See Template."""
        return None if self._url.is_constant else self._url_of(record)

    def request(self, records: Sequence[SinkRecord]) -> Request:
        """See Template."""
        url = self._url_of(records[0])
        if records[0].value is None:
            return Request("DELETE", url)
        if not self._has_body:
            return Request(self._method, url)
        bodies = [self._body_of(record) for record in records]
        form = self._batch
        if form is None:
            (body,) = bodies
        else:
            inner = form.separator.encode().join(bodies)
            body = form.prefix.encode() + inner + form.suffix.encode()
        return Request(self._method, url, body, self._headers)

    def objection(self, answer: Answer) -> Objection | None:
        """See Template; nobody knows what such a server answers."""
        return None

    def _url_of(self, record: SinkRecord) -> str:
        deletes = record.value is None or self._method == "DELETE"
        return self._url.filled(record, fields_of(record), deletes=deletes)

    def _body_of(self, record: SinkRecord) -> bytes:
        if self._body is not None:
            return self._body.filled(record, fields_of(record)).encode("utf-8", "replace")
        return message_bytes(record.value)
