"""What a listener's certificates say: until when the whole chain holds, and for which hosts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker_core.security.certificate_check import ListenerCertificates, listener_certificates
from tests.certificates import Certificates, of_version_2
from waylog.config import ConfigError

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def days(first: int, last: int) -> tuple[datetime, datetime]:
    return NOW + timedelta(days=first), NOW + timedelta(days=last)


def of_names(folder: Path, *names: str) -> ListenerCertificates:
    path = Certificates(folder).make(*names, common_name="names")
    found = listener_certificates({"ssl.keystore.location": str(path)})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("own", "intermediate", "trouble"),
    [
        ((-10, 10), (-10, 10), None),
        ((-10, 10), (-20, -1), "the certificate has expired on 2026-05-31 00:00 UTC"),
        ((-20, -1), (-10, 10), "the certificate has expired on 2026-05-31 00:00 UTC"),
        ((-10, 10), (1, 20), "the certificate is not valid before 2026-06-02 00:00 UTC"),
        ((1, 20), (-10, 10), "the certificate is not valid before 2026-06-02 00:00 UTC"),
    ],
)
def test_a_chain_holds_as_long_as_each_of_its_certificates(
    tmp_path: Path, own: tuple[int, int], intermediate: tuple[int, int], trouble: str | None
) -> None:
    certificates = Certificates(tmp_path)
    paths = [
        certificates.make("127.0.0.1", common_name="own", valid=days(*own)),
        certificates.make("other.example", common_name="next", valid=days(*intermediate)),
    ]
    chain = tmp_path / "chain.pem"
    chain.write_bytes(b"".join(path.read_bytes() for path in paths))
    found = listener_certificates({"ssl.keystore.location": str(chain)})
    assert found is not None
    assert found.dates.trouble(NOW) == trouble
    # Clients look for the host in the first one only.
    assert found.hosts == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("host", "is_named"),
    [
        ("kafka1.example", True),
        ("KAFKA1.Example.", True),
        ("kafka2.example", False),
        ("a.log.example", True),
        ("a.b.log.example", False),
        ("log.example", False),
        ("example", False),
        ("2001:db8:0:0::1", True),
        ("2001:db8::2", False),
    ],
)
def test_hosts_are_compared_as_clients_do(tmp_path: Path, host: str, is_named: bool) -> None:
    found = of_names(tmp_path, "kafka1.example", "*.log.example", "2001:db8::1")
    assert found.names(host) is is_named


def test_a_chain_that_stands_in_the_properties_is_read_as_the_listener_reads_it(
    tmp_path: Path,
) -> None:
    pem = Certificates(tmp_path).broker.read_text()
    for written in (pem, pem.replace("\n", "\\n")):
        found = listener_certificates({"ssl.keystore.certificate.chain": written})
        assert found is not None
        assert found.source == "ssl.keystore.certificate.chain"
        assert found.hosts == {"127.0.0.1", "localhost"}


@pytest.mark.parametrize("content", ["", "no certificate", "-----BEGIN CERTIFICATE-----\n"])
def test_what_cannot_be_read_tells_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "odd.pem"
    path.write_text(content)
    assert listener_certificates({"ssl.keystore.location": str(path)}) is None
    with pytest.raises(ConfigError, match=r"none\.pem: No such file"):
        listener_certificates({"ssl.keystore.location": str(tmp_path / "none.pem")})


def test_a_certificate_that_only_openssl_takes_is_not_judged(tmp_path: Path) -> None:
    path = of_version_2(Certificates(tmp_path).make("127.0.0.1", common_name="odd"))
    assert listener_certificates({"ssl.keystore.location": str(path)}) is None
