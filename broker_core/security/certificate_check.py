"""What is wrong with a listener's own certificates, as its clients would judge them.

A broker with a certificate that nobody accepts starts, as Kafka does: clients may be told not to
verify it. But its operator should hear of it from the broker, not from its clients.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


class CertificateDates(NamedTuple):
    """When a listener's certificates hold: the latest beginning and the earliest end, in UTC."""

    not_before: datetime
    not_after: datetime

    def trouble(self, now: datetime) -> str | None:
        """Return why the certificates are not valid at a time, None if they are."""
        if now > self.not_after:
            return f"the certificate has expired on {_text(self.not_after)}"
        if now < self.not_before:
            return f"the certificate is not valid before {_text(self.not_before)}"
        return None


class ListenerCertificates(NamedTuple):
    """The certificates that a listener shows."""

    #: The property that has them, with the file if there is one.
    source: str
    dates: CertificateDates
    #: The names and addresses of the first one.
    hosts: frozenset[str]

    def names(self, host: str) -> bool:
        """Return whether a client that connects to this host finds it in the certificate."""
        host = _normal(host)
        parent = host.partition(".")[2]
        return host in self.hosts or (bool(parent) and f"*.{parent}" in self.hosts)


def listener_certificates(properties: Mapping[str, str]) -> ListenerCertificates | None:
    """Read the certificates of `ssl.*` properties that have been loaded; None if they are odd."""
    from cryptography.x509 import load_pem_x509_certificates

    location = properties.get("ssl.keystore.location")
    try:
        if location:
            source, pem = f"ssl.keystore.location={location}", Path(location).read_bytes()
        else:
            source = "ssl.keystore.certificate.chain"
            pem = properties.get(source, "").replace("\\n", "\n").encode()
        chain = load_pem_x509_certificates(pem)
        return ListenerCertificates(
            source,
            CertificateDates(
                max(each.not_valid_before_utc for each in chain),
                min(each.not_valid_after_utc for each in chain),
            ),
            _hosts(chain[0]),
        )
    except (OSError, ValueError):
        return None  # what OpenSSL has taken and this reader does not


def _hosts(certificate: Certificate) -> frozenset[str]:
    from cryptography.x509 import DNSName, ExtensionNotFound, IPAddress, SubjectAlternativeName

    try:
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return frozenset()
    found = names.get_values_for_type(DNSName)
    found += map(str, names.get_values_for_type(IPAddress))
    return frozenset(map(_normal, found))


def _normal(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower().rstrip(".")


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
