"""Certificates of a listener whose files change."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pytest

from broker_core.security.tls_reload import ReloadableContext
from tests.certificates import Certificates
from waylog.config import ConfigError


def hosts(context: ReloadableContext) -> frozenset[str]:
    assert context.certificates is not None
    return context.certificates.hosts


def test_a_certificate_that_could_not_be_read_at_first_is_tried_again(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    store = tmp_path / "broker.pem"
    shutil.copy(certificates.broker, store)
    context = ReloadableContext({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)})
    certificates.make("renewed.example", common_name="renewed").replace(store)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        for _ in range(2):
            with pytest.raises(ConfigError, match="Too many open files"):
                context.reload_if_changed()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert hosts(context) == {"127.0.0.1", "localhost"}
    # Nothing of the file has changed since then.
    assert context.reload_if_changed()
    assert hosts(context) == {"renewed.example"}
    assert not context.reload_if_changed()
