"""The certificate of the listener with TLS: renewed while it is open, and its dates."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import trustme
from cryptography import x509

from gateway.mqtt.listening.certificates import listen_with_tls
from gateway.mqtt.listening.options import MqttOptions
from tests.file_descriptors import none_free
from tests.gateway.mqtt.in_memory import Platform, eventually
from waylog.config import Endpoint
from waylog.network.tls import certificate_dates

DAY = timedelta(days=1)


class Files:
    """The files that `--tls-certificate` and `--tls-key` name."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "certificate.pem", folder / "key.pem"
        self._authority = trustme.CA()

    def issue(self, first: datetime, last: datetime) -> trustme.LeafCert:
        return self._authority.issue_cert("127.0.0.1", not_before=first, not_after=last)

    def write(self, issued: trustme.LeafCert) -> None:
        """Replace both, the certificate first, as programs that renew them do."""
        for path, blob in (
            (self.certificate, issued.cert_chain_pems[0]),
            (self.key, issued.private_key_pem),
        ):
            written = path.with_suffix(".new")
            blob.write_to_path(written)
            written.replace(path)


@asynccontextmanager
async def listening(files: Files) -> AsyncIterator[Endpoint]:
    platform = Platform()
    options = MqttOptions(
        tls=Endpoint("127.0.0.1", 0), certificate=files.certificate, key=files.key
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(platform.listening())
        await listen_with_tls(platform.server, options, stack, reuse_port=False, recheck_s=0.02)
        yield platform.server.tls_endpoint


async def end_shown(endpoint: Endpoint) -> datetime:
    """Return when the certificate expires that a new connection is shown."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await asyncio.wait((asyncio.ensure_future(writer.wait_closed()),))
    return x509.load_der_x509_certificate(shown).not_valid_after_utc


async def test_a_renewed_certificate_is_shown_to_new_connections(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files, now = Files(tmp_path), datetime.now(UTC).replace(microsecond=0)
    old, new = (files.issue(now - 80 * DAY, now + days * DAY) for days in (10, 90))
    files.write(old)
    async with listening(files) as endpoint:
        assert await end_shown(endpoint) == now + 10 * DAY
        # Half of a pair, and half of a file, are not used.
        new.cert_chain_pems[0].write_to_path(files.certificate)
        await eventually(lambda: "the former certificate stays in use" in caplog.text)
        assert await end_shown(endpoint) == now + 10 * DAY
        files.write(new)
        await eventually(lambda: "a new certificate for new connections" in caplog.text)
        assert await end_shown(endpoint) == now + 90 * DAY


async def test_a_certificate_that_could_not_be_read_for_a_moment_is_shown_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, now = Files(tmp_path), datetime.now(UTC).replace(microsecond=0)
    files.write(files.issue(now - 80 * DAY, now + 10 * DAY))
    async with listening(files) as endpoint:
        renewed = Files(tmp_path)
        renewed.certificate, renewed.key = tmp_path / "certificate.2", tmp_path / "key.2"
        renewed.write(files.issue(now - 80 * DAY, now + 90 * DAY))
        with none_free():
            renewed.certificate.replace(files.certificate)
            renewed.key.replace(files.key)
            await eventually(lambda: "the former certificate stays in use" in caplog.text)
            await asyncio.sleep(0.2)  # for ten more attempts, of which nothing is told
        assert caplog.text.count("the former certificate stays in use") == 1
        caplog.set_level(logging.INFO)
        await eventually(lambda: "a new certificate for new connections" in caplog.text)
        assert await end_shown(endpoint) == now + 90 * DAY


async def test_the_dates_are_warned_of_while_it_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_dates, "WARN_AGAIN_S", 0.1)
    files, now = Files(tmp_path), datetime.now(UTC).replace(microsecond=0)
    files.write(files.issue(now - 80 * DAY, now + 90 * DAY))
    async with listening(files) as endpoint:
        for last, said in (
            (now + 3 * DAY, "the certificate expires on"),
            (now - DAY, "the certificate has expired on"),
        ):
            files.write(files.issue(now - 80 * DAY, last))
            whole = f"--tls-certificate {files.certificate}: {said} {last:%Y-%m-%d %H:%M UTC}; "
            # Every day, which is a tenth of a second here.
            await eventually(partial(_is_said_three_times, caplog, whole))
            assert await end_shown(endpoint) == last


def _is_said_three_times(caplog: pytest.LogCaptureFixture, said: str) -> bool:
    return sum(each.startswith(said) for each in caplog.messages) >= 3
