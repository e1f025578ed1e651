"""Hands e-mail in at the operator's server (SMTP, RFC 6409 and 8314)."""

from __future__ import annotations

import logging
import time
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, make_msgid
from hashlib import sha256
from typing import Final

import aiosmtplib

from gateway.alerts.alert_sender import Outcome
from gateway.alerts.smtp_settings import SmtpSettings
from waylog.bounded_cache import BoundedCache
from waylog.network.token_bucket import TokenBucket
from waylog.process.log_throttle import LogThrottle, since_last_line

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 10.0
_KNOWN_MAX: Final = 10_000
_DAY_S: Final = 86_400
#: Messages to one mailbox, and of one user: so many at once, and each day.
_AT_ONCE: Final = 20
_DAILY: Final = 200
#: Codes are sent to mailboxes that nobody has confirmed: so many each day.
_CODES_DAILY: Final = 5
_SUBJECT_CHARACTERS_MAX: Final = 200

#: What users are told, whatever the server has said: that may name the operator's accounts.
AWAY: Final = "the platform's mail server cannot be reached or is busy"
REFUSED: Final = "the platform's mail server refuses it; its operator finds the reason in the log"
TOO_MANY: Final = "too many messages today; some are left out"
_NOT_REACHED: Final = Outcome(AWAY, False)


class EmailSender:
    """Sends on one event loop."""

    def __init__(self, settings: SmtpSettings) -> None:
        self._settings: Final = settings
        self._of_user: Final = _buckets(_DAILY, _AT_ONCE)
        self._of_mailbox: Final = _buckets(_DAILY, _AT_ONCE)
        self._codes_of_user: Final = _buckets(_CODES_DAILY, _CODES_DAILY)
        self._codes_of_mailbox: Final = _buckets(_CODES_DAILY, _CODES_DAILY)
        self._not_taken: Final = LogThrottle()

    async def tell(self, user: str, address: str, text: str, message_id: str) -> Outcome:
        """Send a notice to a mailbox that its user has confirmed."""
        if not self._take(user, address, self._of_user, self._of_mailbox):
            return Outcome(TOO_MANY, True)
        return await self._send(address, text, text, message_id)

    async def send_code(self, user: str, address: str, subject: str, text: str) -> Outcome:
        """Send a code to a mailbox that nobody has confirmed."""
        if not self._take(user, address, self._codes_of_user, self._codes_of_mailbox):
            return Outcome(TOO_MANY, True)
        outcome = await self._send(address, subject, text, None)
        if outcome is _NOT_REACHED:
            # No server was asked to send anything anywhere.
            self._codes_of_user.get(user).give_back()
            self._codes_of_mailbox.get(address.lower()).give_back()
        return outcome

    def _take(
        self,
        user: str,
        address: str,
        of_user: BoundedCache[str, TokenBucket],
        of_mailbox: BoundedCache[str, TokenBucket],
    ) -> bool:
        return of_user.get(user).take() and of_mailbox.get(address.lower()).take()

    async def _send(self, address: str, subject: str, text: str, message_id: str | None) -> Outcome:
        settings = self._settings
        message = message_of(settings.sender, address, subject, text, message_id)
        client = aiosmtplib.SMTP(
            hostname=settings.host,
            port=settings.port,
            username=settings.username,
            password=settings.password,
            use_tls=settings.use_tls,
            # None: where it is offered.
            start_tls=False if settings.use_tls else True if settings.must_start_tls else None,
            timeout=_TIMEOUT_S,
        )
        try:
            async with client:
                await client.send_message(message)
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            return self._failed(error)
        return Outcome(None, True)

    def _failed(self, error: Exception) -> Outcome:
        code = _code_of(error)
        # RFC 5321, section 4.2.1: 5yz is for good.
        is_final = 500 <= code < 600
        unsaid = self._not_taken.count(time.monotonic())
        if unsaid is not None:
            logger.warning(
                "e-mail was not taken by %s:%d: %s%s%s",
                *(self._settings.host, self._settings.port, type(error).__name__),
                *(f" ({code})" if code else "", since_last_line(unsaid)),
            )
        if code == 0 and isinstance(error, aiosmtplib.SMTPConnectError):
            return _NOT_REACHED
        return Outcome(REFUSED if is_final else AWAY, is_final)


def message_of(
    sender: str, address: str, subject: str, text: str, message_id: str | None
) -> EmailMessage:
    """Return a message; the same `message_id` names the same message when it is sent again."""
    message = EmailMessage(policy=SMTP)
    message["From"] = f"Waylog <{sender}>"
    message["To"] = address
    message["Subject"] = _one_line(subject)
    message["Date"] = formatdate()
    domain = sender.rpartition("@")[2]
    message["Message-ID"] = (
        make_msgid(domain=domain)
        if message_id is None
        else f"<{sha256(message_id.encode()).hexdigest()}@{domain}>"
    )
    # RFC 3834: no machine answers it.
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(f"{text}\n")
    return message


def _one_line(text: str) -> str:
    plain = "".join(each if each.isprintable() else " " for each in text)
    return plain[:_SUBJECT_CHARACTERS_MAX]


def _code_of(error: Exception) -> int:
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused) and error.recipients:
        return error.recipients[0].code
    return error.code if isinstance(error, aiosmtplib.SMTPResponseException) else 0


def _buckets(daily: int, at_once: int) -> BoundedCache[str, TokenBucket]:
    return BoundedCache(lambda _: TokenBucket(daily / _DAY_S, burst=at_once), _KNOWN_MAX)
