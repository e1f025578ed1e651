"""Formats of phone apps and trackers: one module per app, each with a pure function `parse`.

`parse(body, context) -> Parsed` never raises on bad input. An item that cannot be understood is
returned as `Rejected`, with the reason and its raw bytes, and the other items are still accepted.
Parsers use neither clocks nor sockets; the caller says when the bytes arrived and who sent them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from waylog.messages import Event, Fix, Rejected


class Context(msgspec.Struct, frozen=True):
    """The facts about a body that are known from outside of it: sender, arrival, headers."""

    user: str  # the authenticated user, or the user named in a topic, if the ACL allows it
    device: str | None  # name (or `user/name`) from topic, header or token; overrides the body
    received: int  # ms
    any_user: bool = False  # the sender may name devices of other users (admin, open mode)
    topic: str | None = None  # MQTT topic; None over HTTP
    query: Mapping[str, str] | None = None  # parameters of the URL or of a form, no credentials
    headers: Mapping[str, str] | None = None  # headers worth keeping, without credentials
    content_type: str = ""
    encryption_key: str | None = None  # the user's key, see gateway.formats.secretbox


class Parsed(msgspec.Struct):
    """The contents of one request or message."""

    # The empty lists are not shared: msgspec copies an empty default.
    fixes: list[Fix] = []
    events: list[Event] = []
    rejected: list[Rejected] = []
    #: For each of `rejected`: its index in the batch.
    rejected_at: list[int] = []
    #: For each of `fixes`: the client's own id, None if it gave none. Empty if no fix has one.
    client_ids: list[str | None] = []
    #: OwnTracks' two-letter tracker ID of the device, which answers need.
    tid: str | None = None
    #: The message was encrypted with the user's key, so the answer may be encrypted too.
    encrypted: bool = False
    #: The request came from Overland's OwnTracks mode, which expects an object as the answer.
    from_overland: bool = False
    #: The reason why nothing was parsed (a batch over the limit); None if the body was parsed.
    refused: str | None = None
    #: The reason why the request as a whole is malformed: answered with 400 over HTTP. If it has
    #: anything in it, `rejected` has that too, for protocols without error responses.
    malformed: str | None = None

    @property
    def count(self) -> int:
        """Return the number of records made from the body."""
        return len(self.fixes) + len(self.events) + len(self.rejected)


#: The members of Parsed that may be long; all others belong to the body as a whole.
LISTS: Final = ("fixes", "events", "rejected", "rejected_at", "client_ids")

Parser: TypeAlias = Callable[[bytes, Context], Parsed]

#: Maximum number of items in one request.
BATCH_ITEMS_MAX = 10_000
