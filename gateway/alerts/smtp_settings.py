"""Where the platform hands in the e-mail that it sends, as an operator sets it."""

from __future__ import annotations

from email.errors import MessageError
from email.headerregistry import Address
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from gateway.limits.addresses import is_loopback
from waylog.config import ConfigError
from waylog.os_errors import describe_os_error

#: RFC 5321, section 4.5.3.1.3: a path has 256 characters, two of which are brackets.
ADDRESS_CHARACTERS_MAX: Final = 254
_PASSWORD_BYTES_MAX: Final = 10_000
#: RFC 8314: submission with TLS from the first byte, and RFC 6409: with STARTTLS.
_PORTS: Final = {"smtps": 465, "smtp": 587}
_URL: Final = "smtps://[USER@]HOST[:PORT] or smtp://[USER@]HOST[:PORT]"


class BadAddress(ValueError):
    """A text is not the address of a mailbox; the message does not repeat it."""


class SmtpSettings(NamedTuple):
    """A server that takes e-mail in, and whom it comes from."""

    host: str
    port: int
    #: From the first byte; otherwise by STARTTLS.
    use_tls: bool
    #: Whether the server has to offer STARTTLS: only this machine is spoken to without.
    must_start_tls: bool
    username: str | None
    password: str | None
    sender: str

    def __repr__(self) -> str:
        """Return a text without the password."""
        return f"SmtpSettings({self.host!r}, {self.port})"


def smtp_settings(url: str, sender: str | None, password_file: Path | None) -> SmtpSettings:
    """Return the settings that `--smtp-url` and its companions ask for; raises ConfigError."""
    try:
        parts = urlsplit(url)
        port = parts.port
        host = parts.hostname
    except ValueError:
        raise ConfigError(f"--smtp-url is not {_URL}") from None
    rest = (parts.path.strip("/"), parts.query, parts.fragment)
    if parts.scheme not in _PORTS or not host or port == 0 or any(rest):
        raise ConfigError(f"--smtp-url is not {_URL}")
    if parts.password is not None:
        raise ConfigError(
            "--smtp-url has a password, which every account of this machine could read: it belongs "
            "into --smtp-password-file"
        )
    username = unquote(parts.username) if parts.username else None
    if (username is None) != (password_file is None):
        raise ConfigError(
            "--smtp-password-file and the user's name in --smtp-url go together: give both or none"
        )
    if sender is None:
        raise ConfigError("--smtp-from is missing: the address that e-mail comes from")
    try:
        check_address(sender)
    except BadAddress as error:
        raise ConfigError(f"--smtp-from: {error}") from None
    is_local = is_loopback(host)
    use_tls = parts.scheme == "smtps"
    return SmtpSettings(
        host=host,
        port=port or _PORTS[parts.scheme],
        use_tls=use_tls,
        must_start_tls=not use_tls and not is_local,
        username=username,
        password=None if password_file is None else _password(password_file),
        sender=sender,
    )


def check_address(text: str) -> None:
    """Raise BadAddress unless a text is the address of one mailbox, as name@example.org."""
    if len(text) > ADDRESS_CHARACTERS_MAX:
        raise BadAddress(f"an address has {ADDRESS_CHARACTERS_MAX} characters at most")
    if not text.isascii():
        raise BadAddress(
            "other characters than those of ASCII are not taken: write the domain as xn--..."
        )
    try:
        address = Address(addr_spec=text)
    except (ValueError, IndexError, MessageError):
        raise BadAddress("not an address as name@example.org") from None
    # What is quoted or commented could mean something else to another program.
    if address.addr_spec != text or '"' in text or not _is_domain(address.domain):
        raise BadAddress("not an address as name@example.org")


def _is_domain(text: str) -> bool:
    labels = text.split(".")
    return len(labels) > 1 and all(
        label and label.replace("-", "a").isalnum() and label[0] != "-" and label[-1] != "-"
        for label in labels
    )


def _password(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_PASSWORD_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"--smtp-password-file {describe_os_error(error)}") from None
    try:
        password = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        password = ""
    if not password or len(content) > _PASSWORD_BYTES_MAX or not password.isprintable():
        raise ConfigError(f"--smtp-password-file {path}: a line with a password is expected")
    return password
