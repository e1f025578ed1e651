"""Formats of phone apps and trackers: one file per app, each a pure function `parse`.

`parse(body, context) -> Parsed` never raises on bad input: what cannot be understood comes back as
`Rejected`, with its reason and its raw bytes, and everything beside it is still accepted. Neither
clocks nor sockets are used here; the caller says when the bytes arrived and who sent them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from waylog.messages import Event, Fix, Rejected


class Context(msgspec.Struct, frozen=True):
    """The sender of the bytes, their arrival, and what was said about them outside of the body."""

    user: str  # the authenticated user, or the user a topic names once the ACL has allowed it
    device: str | None  # name (or `user/name`) given by topic, header or token; wins over the body
    received: int  # ms
    any_user: bool = False  # the sender may name devices of other users (admin, open mode)
    topic: str | None = None  # MQTT topic; None over HTTP
    query: Mapping[str, str] | None = None  # parameters of the URL or of a form, no credentials
    headers: Mapping[str, str] | None = None  # those worth keeping, no credentials
    content_type: str = ""
    encryption_key: str | None = None  # of the user, see gateway.formats.secretbox


class Parsed(msgspec.Struct):
    """The contents of one request or message."""

    # The lists are new ones for each: msgspec copies an empty default.
    fixes: list[Fix] = []
    events: list[Event] = []
    rejected: list[Rejected] = []
    #: Place in the batch of each of `rejected`.
    rejected_at: list[int] = []
    #: The sender's own name for each of `fixes`, None where it gave none; empty if no fix has one.
    client_ids: list[str | None] = []
    #: OwnTracks' two-letter name of the device, wanted in answers.
    tid: str | None = None
    #: The message was encrypted with the user's key, so that its answer may be, too.
    encrypted: bool = False
    #: Overland's OwnTracks mode: it wants an object for an answer.
    from_overland: bool = False
    #: The reason for which nothing was looked at (a batch beyond the limit); None if it was.
    refused: str | None = None
    #: The reason why a whole request is not what a program must send: 400 over HTTP. `rejected`
    #: has it too, for channels that know no refusal.
    malformed: str | None = None

    @property
    def count(self) -> int:
        """The number of records that it makes."""
        return len(self.fixes) + len(self.events) + len(self.rejected)


#: The members of Parsed that may be long; all others are the same for the whole.
LISTS: Final = ("fixes", "events", "rejected", "rejected_at", "client_ids")

Parser: TypeAlias = Callable[[bytes, Context], Parsed]

#: Items in one request.
BATCH_ITEMS_MAX = 10_000
