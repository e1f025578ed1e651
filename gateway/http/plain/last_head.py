"""What a connection knows of its last request: the next one often has the same head."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gateway.fixes.plain_positions import PlainPositions
from gateway.formats import Context, positions
from gateway.http.ingest.ingest import named_device
from gateway.http.plain.origin import Origin
from gateway.http.plain.request_head import LengthSpan, RequestHead, length_span, recognise
from gateway.http.requests.authentication import credentials_of, kept_of, without_secrets
from gateway.http.requests.responses import Refused
from gateway.limits.failed_logins import TooManyFailedLogins
from gateway.users.auth import ANONYMOUS, AuthenticationUnavailable, Identity
from gateway.users.database import DEVICE_NAME

if TYPE_CHECKING:
    from gateway.http.requests.services import Services


class LastHead:
    """The last head of a connection, who sends by it, and what is parsed with it."""

    __slots__ = (
        *("_bytes", "_context", "_head", "_key", "_plain", "_services", "_span"),
        *("body_bytes", "identity"),
    )

    def __init__(self, services: Services) -> None:
        self._services = services
        self._bytes = b""
        self._head: RequestHead | None = None
        self._span: LengthSpan | None = None
        self._key: bytes | None = None
        self._context: Context | None = None
        self._plain: PlainPositions | None = None
        #: The length of the body that follows.
        self.body_bytes = 0
        #: Who sends, as far as is known without a look at the time.
        self.identity: Identity | None = None

    def next(self, head_bytes: bytes) -> RequestHead | None:
        """Return the values of a head, which is the last one from now on.

        They are None if aiohttp has to serve the request. But for the length of the body, the
        values are those of the first head that was like this one.
        """
        if head_bytes != self._bytes and not self._differs_in_length(head_bytes):
            self._recognise(head_bytes)
        return self._head

    def identity_now(self) -> Identity | None:
        """Return the identity of the sender, if its credentials were verified recently."""
        if self._key is None:
            return self.identity
        identity = self._services.authenticator.recall(self._key)
        if identity is not self.identity:
            self.identity = identity
            self._context = None
        return identity

    async def authenticate(self, origin: Origin) -> Identity | None:
        """Verify the credentials of the sender; None if they are not valid, or nobody can tell."""
        head = self._head
        assert head is not None
        credentials = credentials_of(head.headers, head.query, head.token)
        assert credentials is not None
        address, authenticator = origin.client(head.headers), self._services.authenticator
        try:
            if credentials.user is None:
                return await authenticator.authenticate_token(credentials.secret, address)
            return await authenticator.authenticate(credentials.user, credentials.secret, address)
        except (AuthenticationUnavailable, TooManyFailedLogins):
            return None

    def context_of(self, identity: Identity) -> tuple[Context, PlainPositions | None]:
        """Return the context of a body, but for its time, and a fast parser if one may be used."""
        context = self._context
        if context is None:
            assert self._head is not None
            context = self._context = self._new_context(self._head, identity)
        return context, self._plain

    def _differs_in_length(self, head_bytes: bytes) -> bool:
        """Take over the Content-Length if all else is as in the last head; tell whether it is."""
        span = self._span
        if span is None:
            return False
        length = span.of_same(self._bytes, head_bytes)
        if length is None:
            return False
        self._span = LengthSpan(span.start, span.end + len(head_bytes) - len(self._bytes))
        self._bytes = head_bytes
        self.body_bytes = length
        return True

    def _recognise(self, head_bytes: bytes) -> None:
        self._bytes = head_bytes
        head = self._head = recognise(head_bytes)
        self._key = self.identity = self._context = self._span = None
        if head is None:
            return
        self.body_bytes = head.body_bytes
        self._span = length_span(head_bytes)
        authenticator = self._services.authenticator
        try:
            credentials = credentials_of(head.headers, head.query, head.token)
        except Refused:
            self._head = None
            return
        if authenticator.open_mode and not self._services.hosts.serves(head.headers["Host"]):
            self._head = None
        elif credentials is not None:
            if authenticator.open_mode:
                # Every user name is accepted as it is; a token without one has to be looked up by
                # aiohttp's handlers.
                user = credentials.user
                if user is None or not DEVICE_NAME.fullmatch(user):
                    self._head = None
                else:
                    self.identity = Identity(user)
                return
            self._key = authenticator.key_of(credentials.user, credentials.secret)
        elif authenticator.open_mode:
            named = head.query.get("u") or head.headers.get("X-Limit-U") or ANONYMOUS
            self.identity = Identity(named if DEVICE_NAME.fullmatch(named) else ANONYMOUS)
        else:
            self._head = None

    def _new_context(self, head: RequestHead, identity: Identity) -> Context:
        query = without_secrets(head.query)
        self._plain = None
        context = Context(
            user=identity.user,
            device=named_device(identity, query, head.headers, head.device),
            received=0,
            any_user=identity.admin or self._services.authenticator.open_mode,
            query=query,
            headers=kept_of(head.headers),
            content_type=head.headers.get("Content-Type", "").partition(";")[0].strip().lower(),
            encryption_key=identity.rights.encryption_key,
        )
        admission = self._services.admission
        mixed = positions.COORDINATES & query.keys()  # which the complete parser refuses
        ours = head.format.name == positions.SOURCE and not mixed
        if ours and not admission.is_metered(identity):
            knows = partial(admission.knows_device, identity)
            self._plain = PlainPositions(context.user, context.device, knows)
        return context
