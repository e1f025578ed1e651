"""One request that is being answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from broker_core.protocol.messages import Buffer, RequestHeader, encode_response


class ResponseSink(Protocol):
    """The connection a request came from."""

    def answered(self, request: Request) -> None:
        """The request has got its response, or needs none."""

    def abort(self) -> None:
        """Close at once."""

    @property
    def peer_host(self) -> str:
        """The client's address."""


class Request:
    """A decoded request, and the place where its response is put.

    Responses leave a connection in the order of its requests: one that is ready early waits here.
    """

    __slots__ = ("_sink", "body", "header", "on_close", "parts")

    def __init__(self, sink: ResponseSink, header: RequestHeader, body: dict[str, Any]) -> None:
        self._sink = sink
        self.header = header
        self.body = body
        #: What is to be sent; None until there is an answer, empty when none is wanted.
        self.parts: list[Buffer] | None = None
        #: Called when the connection closes before the answer.
        self.on_close: Callable[[], None] | None = None

    @property
    def version(self) -> int:
        """The API version that the client speaks."""
        return self.header.version

    @property
    def client_id(self) -> str:
        """What the client calls itself."""
        return self.header.client_id or ""

    @property
    def client_host(self) -> str:
        """The client's address, as DescribeGroups shows it."""
        return "/" + self._sink.peer_host

    def reply(self, response: dict[str, Any]) -> None:
        """Answer. The members are those of the newest version; the codec leaves out the rest."""
        self.parts = encode_response(self.header, response)
        self.body = {}
        self._sink.answered(self)

    def reply_nothing(self) -> None:
        """The client wants no answer (acks=0)."""
        self.parts = []
        self.body = {}
        self._sink.answered(self)

    def disconnect(self) -> None:
        """Close the connection: the only answer to who wants none (acks=0)."""
        self._sink.abort()
