"""One request that is being answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from broker_core.protocol.definitions.messages import Part, RequestHeader, encode_response
from broker_core.security.principal import Principal
from waylog.config import Endpoint

if TYPE_CHECKING:
    from broker_core.server.network.session import ClientSession


class ResponseSink(Protocol):
    """The connection a request came from."""

    def answered(self, request: Request) -> None:
        """The request has got its response, or needs none."""

    def abort(self) -> None:
        """Close at once."""

    def close_when_answered(self) -> None:
        """Take no further requests, and close behind the last answer."""

    def mute(self, milliseconds: int) -> None:
        """Take no further requests for a while."""

    def when_lost(self, lost: Callable[[], None]) -> None:
        """Call something when the connection is gone."""

    @property
    def peer_host(self) -> str:
        """The client's address."""

    @property
    def session(self) -> ClientSession:
        """The client's principal."""

    @property
    def sends_files(self) -> bool:
        """Tell whether a response may have parts that nobody has read (`Unread`)."""


class Request:
    """A decoded request, and the place where its response is put.

    Responses leave a connection in the order of its requests: one that is ready early waits here.
    """

    __slots__ = (
        "_sink",
        "amend",
        "arrived",
        "begun",
        "body",
        "header",
        "local_done",
        "on_close",
        "parts",
        "replied",
        "size",
        "throttle_ms",
    )

    def __init__(
        self, sink: ResponseSink, header: RequestHeader, body: dict[str, Any], size: int = 0
    ) -> None:
        self._sink = sink
        self.header = header
        self.body = body
        #: Bytes of the frame.
        self.size = size
        #: What is to be sent; None until there is an answer, empty when none is wanted.
        self.parts: list[Part] | None = None
        #: Called when the connection closes before the answer.
        self.on_close: Callable[[], None] | None = None
        #: Called with the response before it is encoded, to add what the handler was not shown.
        self.amend: Callable[[dict[str, Any]], None] | None = None
        #: What the client is told of having exceeded a quota.
        self.throttle_ms = 0
        # Moments for the metrics (`time.perf_counter`), where they are kept.
        self.arrived = 0.0
        self.begun = 0.0
        self.local_done = 0.0
        self.replied = 0.0

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

    @property
    def host(self) -> str:
        """The client's address, as ACLs have it."""
        return self._sink.peer_host

    @property
    def session(self) -> ClientSession:
        """The connection's state: who the client is, how it logged in."""
        return self._sink.session

    @property
    def sends_files(self) -> bool:
        """Tell whether the response may have parts that nobody has read (`Unread`)."""
        return self._sink.sends_files

    @property
    def principal(self) -> Principal:
        """The principal that asks."""
        return self._sink.session.principal

    @property
    def advertised(self) -> Endpoint:
        """The broker's address as clients of this listener see it."""
        return self._sink.session.advertised

    def reply(self, response: dict[str, Any]) -> None:
        """Answer. The members are those of the newest version; the codec leaves out the rest."""
        if self.amend is not None:
            self.amend(response)
        if self.throttle_ms:
            response["throttle_time_ms"] = self.throttle_ms
        self.reply_encoded(encode_response(self.header, response))

    def reply_encoded(self, parts: list[Part]) -> None:
        """Answer with bytes that need no encoding."""
        self.parts = parts
        self.body = {}
        self._sink.answered(self)

    def reply_nothing(self) -> None:
        """The client wants no answer (acks=0)."""
        self.reply_encoded([])

    def throttle(self, milliseconds: int) -> None:
        """Tell the client to wait, and take no further requests of it until then (KIP-219)."""
        if milliseconds > self.throttle_ms:
            self.throttle_ms = milliseconds
            self._sink.mute(milliseconds)

    def when_lost(self, lost: Callable[[], None]) -> None:
        """Call something when the client's connection is gone."""
        self._sink.when_lost(lost)

    def disconnect(self) -> None:
        """Close the connection: the only answer to who wants none (acks=0)."""
        self._sink.abort()

    def disconnect_after_reply(self) -> None:
        """Close the connection when the client has its answer; it may ask nothing more."""
        self._sink.close_when_answered()
