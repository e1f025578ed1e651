"""Clients whose user or certificate is revoked while they are connected or away."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.mqtt.listening.certificates import listen_with_tls
from gateway.mqtt.listening.options import MqttOptions
from gateway.users.auth import Authenticator
from gateway.users.database import UserStore
from gateway.users.permissions import Permissions
from tests.file_descriptors import none_free
from tests.gateway.mqtt.in_memory import WAIT_S, PahoClient, Platform, eventually
from waylog.config import Endpoint

NOW = datetime.now(UTC)


#: RFC 5280, section 4.2.1.3: the key usage of an authority. Python 3.13 requires it.
_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Issues certificates and revokes them."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self._revocations = 0
        self.certificate = (
            self._certificate(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def _certificate(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - timedelta(days=1))
            .not_valid_after(NOW + timedelta(days=1))
            # RFC 5280, section 4.2.1.1: the key identifiers. Python 3.13 requires them.
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        )

    def issue(self, folder: Path, name: str) -> x509.Certificate:
        """Write NAME.pem (certificate) and NAME.key to a folder."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._certificate(subject, key).sign(self._key, hashes.SHA256())
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate

    def write_list(self, path: Path, *revoked: x509.Certificate) -> None:
        """Write a list of revoked certificates."""
        self._revocations += 1
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(NOW - timedelta(hours=2) + timedelta(minutes=self._revocations))
            .next_update(NOW + timedelta(days=1))
        )
        for each in revoked:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(each.serial_number)
                .revocation_date(NOW - timedelta(hours=1))
                .build()
            )
        partial_path = path.with_suffix(".new")
        crl = builder.sign(self._key, hashes.SHA256())
        partial_path.write_bytes(crl.public_bytes(serialization.Encoding.PEM))
        partial_path.replace(path)


@contextlib.asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[tuple[Platform, UserStore, Authority]]:
    """Run a server with real users, who may also authenticate with certificates."""
    authority = Authority()
    (folder / "ca.pem").write_bytes(authority.certificate.public_bytes(serialization.Encoding.PEM))
    authority.issue(folder, "server")
    authority.write_list(folder / "revoked.pem")
    options = MqttOptions(
        tls=Endpoint("127.0.0.1", 0),
        certificate=folder / "server.pem",
        key=folder / "server.key",
        client_ca=folder / "ca.pem",
        client_crl=folder / "revoked.pem",
    )
    store = UserStore(folder / "users.db")
    authenticator = Authenticator(store)
    permissions = Permissions(store)
    platform = Platform(users=authenticator)  # type: ignore[arg-type]  # the real one
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(store.close)
        stack.callback(authenticator.close)
        await stack.enter_async_context(platform.listening(permissions=permissions))
        await listen_with_tls(platform.server, options, stack, reuse_port=False, recheck_s=0.05)
        # `waylog user revoke` changes the database in another process.
        permissions.subscribe(platform.server.rights_changed)
        watching = asyncio.create_task(permissions.watch(0.05))
        stack.callback(watching.cancel)
        other = stack.enter_context(contextlib.closing(UserStore(folder / "users.db")))
        yield platform, other, authority


def certified(platform: Platform, folder: Path, name: str, **options: Any) -> PahoClient:
    """Return a client with a certificate."""
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    context.check_hostname = False
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    client = PahoClient(platform.server.tls_endpoint.port, f"{name}-phone", **options)
    client.client.tls_set_context(context)
    client.client.tls_insecure_set(True)
    client.client.reconnect_delay_set(60, 60)
    return client


async def disconnected(client: PahoClient) -> int:
    async with asyncio.timeout(WAIT_S):
        return int((await client.disconnected.get()).value)


async def test_whoever_is_revoked_is_cut_and_leaves_no_session(tmp_path: Path) -> None:
    async with listening(tmp_path) as (platform, users, authority):
        authority.issue(tmp_path, "ada")
        token = users.add("ada")
        bobs = users.add("bob")
        port = platform.server.endpoint.port
        by_token = PahoClient(port, "by-token", version=5)
        by_token.client.reconnect_delay_set(60, 60)
        assert (await by_token.connect("ada", token))[0].value == 0
        by_certificate = certified(platform, tmp_path, "ada", version=5)
        assert (await by_certificate.connect())[0].value == 0
        away = PahoClient(port, "away", clean_session=False)
        await away.connect("ada", token)
        await away.subscribe("devices/ada/phone/note")
        await away.close()
        other = PahoClient(port, "other")
        await other.connect("bob", bobs)
        await eventually(lambda: platform.server.gauges()["sessions"] == 4)

        users.revoke("ada")
        assert await disconnected(by_token) == 0x87
        assert await disconnected(by_certificate) == 0x87
        await eventually(lambda: platform.server.gauges()["sessions"] == 1)
        assert other.disconnected.empty()
        for client in (by_token, by_certificate, other):
            await client.close()


async def test_whoever_holds_the_token_of_a_device_is_cut_with_its_user(tmp_path: Path) -> None:
    async with listening(tmp_path) as (platform, users, _):
        users.add("ada")
        token = users.add_token("ada", "phone")
        port = platform.server.endpoint.port
        away = PahoClient(port, "away", clean_session=False)
        await away.connect("ada", token)
        await away.subscribe("devices/ada/phone/note")
        await away.close()
        here = PahoClient(port, "here", version=5)
        here.client.reconnect_delay_set(60, 60)
        assert (await here.connect("ada", token))[0].value == 0
        await eventually(lambda: platform.server.gauges()["sessions"] == 2)

        users.revoke("ada")
        assert await disconnected(here) == 0x87
        await eventually(lambda: platform.server.gauges()["sessions"] == 0)
        await here.close()


async def test_a_certificate_on_the_list_of_revoked_ones_is_good_for_nothing(
    tmp_path: Path,
) -> None:
    async with listening(tmp_path) as (platform, users, authority):
        lost = authority.issue(tmp_path, "ada")
        authority.issue(tmp_path, "bob")
        users.add("ada")
        users.add("bob")
        phone = certified(platform, tmp_path, "ada", version=5)
        other = certified(platform, tmp_path, "bob", version=5)
        assert (await phone.connect())[0].value == 0
        assert (await other.connect())[0].value == 0

        authority.write_list(tmp_path / "revoked.pem", lost)
        assert await disconnected(phone) == 0x87
        again = certified(platform, tmp_path, "ada", version=5)
        with pytest.raises((ssl.SSLError, ConnectionError, TimeoutError)):
            await asyncio.wait_for(again.connect(), 0.7)
        assert other.disconnected.empty()
        for client in (phone, other, again):
            await client.close()


async def test_a_list_that_could_not_be_read_for_a_moment_is_in_force_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(tmp_path) as (platform, users, authority):
        lost = authority.issue(tmp_path, "ada")
        users.add("ada")
        phone = certified(platform, tmp_path, "ada", version=5)
        assert (await phone.connect())[0].value == 0
        authority.write_list(tmp_path / "revoked.2", lost)
        unread = "revoked.pem cannot be read as a list of revoked certificates"
        with none_free():
            (tmp_path / "revoked.2").replace(tmp_path / "revoked.pem")
            await eventually(lambda: unread in caplog.text)
            await asyncio.sleep(0.3)  # for six more attempts, of which nothing is told
        assert caplog.text.count(unread) == 1
        assert await disconnected(phone) == 0x87
        await phone.close()
