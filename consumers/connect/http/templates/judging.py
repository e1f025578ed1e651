"""Tells by its body whether an answer is one of a server."""

from __future__ import annotations

from typing import Final

import msgspec

from consumers.connect.http.answers.answer import Answer, Objection
from consumers.connect.http.answers.status import Meaning
from waylog.malformed import MALFORMED

_PAGES: Final = (b"<!doctype", b"<html", b"<head", b"<body")
_BLANK: Final = b"\xef\xbb\xbf \t\r\n"


def is_web_page(answer: Answer) -> bool:
    """Tell whether an answer is HTML; one that only says so, as PHP does, is none."""
    start = answer.body[:200].lstrip(_BLANK).lower()
    return start.startswith(_PAGES) or (
        start.startswith(b"<") and answer.content_type in ("text/html", "application/xhtml+xml")
    )


def is_json(answer: Answer) -> bool:
    """Tell whether an answer is a list or an object in JSON, as far as it was read."""
    if not answer.body.lstrip(_BLANK).startswith((b"[", b"{")):
        return False
    if not answer.is_whole:
        return True
    try:
        msgspec.json.decode(answer.body.lstrip(_BLANK), type=msgspec.Raw)
    except MALFORMED:
        return False
    return True


def not_of(server: str) -> Objection:
    """Return the objection that something else has answered; the request is repeated."""
    return Objection(Meaning.LATER, f"which is no answer of {server}", is_from_server=False)
