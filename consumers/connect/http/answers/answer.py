"""What has come, and what a template has against it."""

from __future__ import annotations

from typing import NamedTuple

from consumers.connect.http.answers.status import Meaning, meaning_of


class Answer(NamedTuple):
    """What has come; whether it is what the server says is for a template to tell."""

    status: int
    content_type: str = ""  # without parameters
    body: bytes = b""
    is_whole: bool = True  # False: the body goes on

    @property
    def is_success(self) -> bool:
        """True for a status of success, whatever the body is."""
        return meaning_of(self.status) is Meaning.DELIVERED


class Objection(NamedTuple):
    """Why an answer does not mean what its status does."""

    meaning: Meaning
    reason: str
    is_from_server: bool = True  # False: something else has answered in its place
