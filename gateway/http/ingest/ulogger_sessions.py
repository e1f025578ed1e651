"""uLogger's server interface: signing in, tracks and positions, all at `client/index.php`.

The app signs in with name and password and then sends a cookie. The cookie holds these credentials,
encrypted with a secret of the installation. So there is no session table, every worker can decrypt
it, and a revoked user is locked out at once. A token in the path makes signing in unnecessary.
"""

from __future__ import annotations

import base64
import binascii
from contextlib import suppress
from typing import Any, Final

from aiohttp import web
from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

from gateway.bodies.parsing import READ_HERE_BYTES_MAX, ParsingUnavailable
from gateway.formats import Context, ulogger
from gateway.formats.values import Unacceptable
from gateway.http.ingest.ingest import Ingest, check_may_send
from gateway.http.ingest.paths import PHONETRACK_ROOTS
from gateway.http.requests.authentication import (
    Credentials,
    credentials_of,
    parameters_without_secrets,
    verify,
)
from gateway.http.requests.responses import Refused, json_answer, unavailable
from gateway.http.requests.services import Services
from gateway.limits.bounds import OVERHEAD_BYTES, RECORD_BYTES, TOO_MUCH_UNDER_WAY
from gateway.limits.pools import Hold
from gateway.users.auth import Identity
from waylog.network.shares import ShareExceeded
from waylog.observability.telemetry import now_ms

COOKIE: Final = "ULOGGER"
_SECRET: Final = "ulogger sessions"  # noqa: S105 the secret's name
_TAIL: Final = "/client/index.php"

PATHS: Final = (
    _TAIL,
    f"/ulogger{_TAIL}",
    f"/ulogger/{{token}}{_TAIL}",
    *(f"{root}/log/ulogger/{{token}}/{{device}}{_TAIL}" for root in PHONETRACK_ROOTS),
)


class UloggerSessions:
    """The handlers of uLogger's interface."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest

    def routes(self) -> list[web.RouteDef]:
        """Return the routes: `client/index.php` below every path that a user may configure."""
        return [web.post(path, self._receive) for path in PATHS]

    async def _receive(self, request: web.Request) -> web.Response:
        body = await self._ingest.receive_body(request)
        # A large body has a picture in it; a sign-in is never large.
        large = len(body) > READ_HERE_BYTES_MAX
        context = Context(
            *("", None, now_ms()),
            query=parameters_without_secrets(request),
            headers={"Content-Type": _content_type(request)},
        )
        form: dict[str, str] = {}
        with suppress(Unacceptable):  # parsed again below, and then kept in topic `error`
            form = {} if large else ulogger.form_of(bytes(body), context)
        action = form.get("action")
        try:
            identity = await self._identity(request, form)
        except Refused as refusal:
            if refusal.status != 401:
                raise
            await self._ingest.keep_refused(ulogger.SOURCE, request, refusal.reason)
            return _failure(refusal.reason, 401)
        if action == "auth":
            answer = json_answer({"error": False})
            if "token" not in request.match_info:
                answer.set_cookie(
                    COOKIE, self._seal(form), httponly=True, samesite="Strict", path="/"
                )
            return answer
        check_may_send(identity)
        context = self._ingest.context(request, identity)
        if large:
            try:
                parsing = self._services.parsing
                parsed = await parsing.parse(ulogger.SOURCE, body, context, identity.user)
            except ParsingUnavailable as error:
                raise unavailable(str(error)) from error
        else:
            parsed = ulogger.parse(bytes(body), context)
        if parsed.malformed is not None:
            return _failure(parsed.malformed, 400)
        try:
            hold = Hold(
                self._services.under_way,
                identity.user,
                len(body) + OVERHEAD_BYTES + parsed.count * RECORD_BYTES,
            )
        except ShareExceeded:
            raise unavailable(TOO_MUCH_UNDER_WAY) from None
        trace = request.headers.get("traceparent")
        try:
            await self._ingest.store(parsed, identity, trace, hold=hold)
        finally:
            hold.release()
        members: dict[str, Any] = {"error": False}
        if action == "addtrack":
            members["trackid"] = ulogger.track_id(context.received)
        return json_answer(members)

    async def _identity(self, request: web.Request, form: dict[str, str]) -> Identity:
        token = request.match_info.get("token")
        credentials = credentials_of(request.headers, {}, token)
        if credentials is None and form.get("action") == "auth":
            credentials = Credentials(form.get("user") or None, form.get("pass", ""))
        if credentials is None:
            credentials = self._unseal(request.cookies.get(COOKIE, ""))
        return await verify(request, credentials)

    def _seal(self, form: dict[str, str]) -> str:
        plain = f"{form.get('user', '')}\0{form.get('pass', '')}".encode("utf-8", "replace")
        return base64.urlsafe_b64encode(self._box().encrypt(plain)).decode()

    def _unseal(self, cookie: str) -> Credentials:
        try:
            sealed = base64.b64decode(cookie, altchars=b"-_", validate=True)
            user, _, secret = self._box().decrypt(sealed).decode().partition("\0")
        except (binascii.Error, ValueError, CryptoError) as error:
            raise Refused(401, "sign in first") from error
        return Credentials(user or None, secret)

    def _box(self) -> SecretBox:
        return SecretBox(self._services.users.rights.secret(_SECRET))


def _content_type(request: web.Request) -> str:
    return request.headers.get("Content-Type", "")


def _failure(message: str, status: int = 200) -> web.Response:
    """Return an error in the form of uLogger's server. 401 makes the app sign in again."""
    return json_answer({"error": True, "message": message}, status)
