"""A listener's own certificates, as its clients would judge them."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from waylog.config import ConfigError
from waylog.network.tls.certificate_dates import CertificateDates

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


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
    """Read the certificates of `ssl.*` properties that have been loaded; None if they are odd.

    Raises ConfigError if their file cannot be read any more.
    """
    from cryptography.x509 import load_pem_x509_certificates

    location = properties.get("ssl.keystore.location")
    if location:
        source = f"ssl.keystore.location={location}"
        try:
            pem = Path(location).read_bytes()
        except OSError as error:
            raise ConfigError(f"{source}: {error.strerror}") from None
    else:
        source = "ssl.keystore.certificate.chain"
        pem = properties.get(source, "").replace("\\n", "\n").encode()
    try:
        chain = load_pem_x509_certificates(pem)
        return ListenerCertificates(source, CertificateDates.of(chain), _hosts(chain[0]))
    except Exception:
        # What OpenSSL has taken and this reader does not: not all that it raises is a ValueError,
        # and it is only asked for what an operator should be told.
        return None


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
