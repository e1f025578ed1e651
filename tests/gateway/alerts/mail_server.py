"""A mail server for tests: keeps what it is sent, and refuses it where a test says so."""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.ports import reserved_ports


class Mailboxes:
    """What a server has been sent, and what it answers to further messages."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._received: list[EmailMessage] = []
        #: An answer to each message in place of taking it.
        self.answer: str | None = None
        #: Who may sign in, and who has tried.
        self.login: tuple[str, str] | None = None
        self.tried: list[tuple[str, str]] = []
        self.has_started_tls: list[bool] = []
        self.port = 0

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.answer is not None:
            return self.answer
        assert isinstance(envelope.content, bytes)
        message = message_from_bytes(envelope.content, policy=default)
        assert isinstance(message, EmailMessage)
        assert envelope.rcpt_tos == [message["To"]]
        with self._changed:
            self.has_started_tls.append(session.ssl is not None)
            self._received.append(message)
            self._changed.notify_all()
        return "250 taken"

    def authenticate(
        self, server: Any, session: Any, envelope: Any, how: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        given = (data.login.decode(), data.password.decode())
        self.tried.append(given)
        return AuthResult(success=given == self.login, handled=False)

    def to(self, address: str, count: int = 1) -> list[EmailMessage]:
        """Return all messages to an address, once there are so many."""

        def found() -> list[EmailMessage]:
            return [message for message in self._received if message["To"] == address]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, 60), (address, count)
            return found()

    def code(self, address: str, number: int = 1) -> str:
        """Return the code in a message to an address, the first of which is 1."""
        found = re.search(r"\b\d{8}\b", self.to(address, number)[number - 1].get_content())
        assert found is not None
        return found[0]


@contextmanager
def mail_server(
    tls: ssl.SSLContext | None = None,
    login: tuple[str, str] | None = None,
    start_tls: ssl.SSLContext | None = None,
) -> Iterator[Mailboxes]:
    """Run a server on this machine, with TLS from the first byte or after STARTTLS."""
    boxes = Mailboxes()
    boxes.login = login
    [boxes.port] = reserved_ports(1)
    controller = Controller(
        boxes,
        hostname="127.0.0.1",
        port=boxes.port,
        ssl_context=tls,
        tls_context=start_tls,
        authenticator=None if login is None else boxes.authenticate,
        # What counts as encrypted is known to the listener alone.
        auth_require_tls=False,
        ready_timeout=60,  # five seconds are not enough for a busy machine
    )
    controller.start()
    try:
        yield boxes
    finally:
        controller.stop()
