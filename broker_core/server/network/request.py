"""A request that is being answered."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from broker_core.protocol.definitions.messages import RequestHeader, encode_response
from broker_core.protocol.parts import Part
from broker_core.protocol.schema import RequestBody, ResponseBody
from broker_core.security.principal import ANONYMOUS, Principal
from waylog.config import Endpoint
from waylog.network.peer_parties import party_of

if TYPE_CHECKING:
    from broker_core.server.network.session import ClientSession


logger = logging.getLogger(__name__)

Result = TypeVar("Result")

#: Stands for the body of a request that has its response: what it was decoded from is used again.
_DONE: Final[Any] = {}


def client_party(principal: Principal, host: str) -> str:
    """Return whose turn a client's request waits for: its user's, or else its address's."""
    return party_of(host) if principal == ANONYMOUS else str(principal)


class ResponseSink(Protocol):
    """The connection from which a request came."""

    def answered(self, request: AnyRequest) -> None:
        """Take note that the request has its response, or needs none."""

    def abort(self) -> None:
        """Close at once."""

    def close_when_answered(self) -> None:
        """Read no further requests, and close after the last response."""

    def mute(self, milliseconds: int) -> None:
        """Read no further requests for a while."""

    def hold(self) -> None:
        """Read no further requests before `release`, which is to be called as often as this."""

    def release(self) -> None:
        """Read requests again."""

    def when_lost(self, lost: Callable[[], None]) -> None:
        """Call `lost` when the connection is lost."""

    @property
    def peer_host(self) -> str:
        """The client's address."""

    @property
    def session(self) -> ClientSession:
        """The connection's session, with the client's principal."""

    @property
    def sends_files(self) -> bool:
        """Tell whether a response may have parts that are sent from files (`FileRange`)."""


class Request(Generic[RequestBody, ResponseBody]):
    """A decoded request, and its response.

    Responses leave a connection in the order of its requests: an early one waits here.
    """

    __slots__ = (
        "_amend",
        "_sink",
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
        self, sink: ResponseSink, header: RequestHeader, body: RequestBody, size: int = 0
    ) -> None:
        self._sink = sink
        self.header = header
        self.body = body
        #: Size of the frame in bytes.
        self.size = size
        #: Encoded response; None until it is ready, empty if the client wants none.
        self.parts: list[Part] | None = None
        #: Called if the connection closes before the response.
        self.on_close: Callable[[], None] | None = None
        self._amend: Callable[[ResponseBody], None] | None = None
        #: Milliseconds that the client is told to wait because it exceeded a quota.
        self.throttle_ms = 0
        # Times for the metrics (`time.perf_counter`), if there are any.
        self.arrived = 0.0
        self.begun = 0.0
        self.local_done = 0.0
        self.replied = 0.0

    @property
    def sink(self) -> ResponseSink:
        """The connection from which the request came."""
        return self._sink

    @property
    def version(self) -> int:
        """API version of the request."""
        return self.header.version

    @property
    def client_id(self) -> str:
        """Client id of the request, "" if it has none."""
        return self.header.client_id or ""

    @property
    def client_host(self) -> str:
        """The client's address in the form of DescribeGroups."""
        return "/" + self._sink.peer_host

    @property
    def host(self) -> str:
        """The client's address in the form of ACLs."""
        return self._sink.peer_host

    @property
    def session(self) -> ClientSession:
        """State of the connection, such as the client's login."""
        return self._sink.session

    @property
    def sends_files(self) -> bool:
        """Tell whether the response may have parts that are sent from files (`FileRange`)."""
        return self._sink.sends_files

    @property
    def principal(self) -> Principal:
        """The client's principal."""
        return self._sink.session.principal

    @property
    def advertised(self) -> Endpoint:
        """The broker's address for clients of this listener."""
        return self._sink.session.advertised

    def amend_with(self, amend: Callable[[ResponseBody], None]) -> None:
        """Change the response before it is encoded: add refusals, count its bytes for quotas.

        Amendments are made in the order in which they were asked for.
        """
        earlier = self._amend
        if earlier is None:
            self._amend = amend
            return

        def both(response: ResponseBody) -> None:
            earlier(response)
            amend(response)

        self._amend = both

    def amend(self, response: ResponseBody) -> None:
        """Make the amendments that were asked for."""
        # They refer to the request: kept, the two would wait for the garbage collector.
        amend, self._amend = self._amend, None
        if amend is not None:
            amend(response)

    def reply(self, response: ResponseBody) -> None:
        """Answer with fields of the newest version; the codec drops those of other versions.

        A response that cannot be encoded costs the client its connection, and nobody else anything.
        """
        try:
            if self._amend is not None:
                self.amend(response)
            if self.throttle_ms:
                fields: Any = response
                fields["throttle_time_ms"] = self.throttle_ms
            parts = encode_response(self.header, response)
        except Exception:
            self._fail()
            return
        self.reply_encoded(parts)

    def run(self, work: Callable[[], Result]) -> Result | None:
        """Do a part of what answers this request, for example in a timer; return its result.

        None after an exception, which costs the client its connection: there would be no answer.
        """
        try:
            return work()
        except Exception:
            self._fail()
            return None

    def _fail(self) -> None:
        logger.exception(
            "%s version %d of %s failed", self.header.api.name, self.version, self.host
        )
        self.disconnect()

    def reply_encoded(self, parts: list[Part]) -> None:
        """Answer with an encoded response."""
        self.parts = parts
        self.body = _DONE
        self._sink.answered(self)

    def reply_nothing(self) -> None:
        """Send no response, as the client asked (acks=0)."""
        self.reply_encoded([])

    def hold(self) -> None:
        """Read no further requests from the client before `release`.

        It is to be called as often as this: several parts of a request may wait for something.
        """
        self._sink.hold()

    def release(self) -> None:
        """Read requests from the client again."""
        self._sink.release()

    def throttle(self, milliseconds: int) -> None:
        """Tell the client to wait, and read no requests from it until then (KIP-219)."""
        if milliseconds > self.throttle_ms:
            self.throttle_ms = milliseconds
            self._sink.mute(milliseconds)

    def when_lost(self, lost: Callable[[], None]) -> None:
        """Call `lost` when the client's connection is lost."""
        self._sink.when_lost(lost)

    def disconnect(self) -> None:
        """Close the connection: the only way to report an error if acks=0."""
        self._amend = None
        self._sink.abort()

    def disconnect_after_reply(self) -> None:
        """Close the connection after the response; read no further requests."""
        self._sink.close_when_answered()


#: A request of which it is not known here which API it is of.
AnyRequest = Request[Any, Any]
