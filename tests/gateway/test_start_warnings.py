"""What a gateway says at its start of options that may become right later."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
import trustme

from gateway import command
from gateway.mqtt.publishing.mapping import parse_rule
from waylog import cli


def test_what_is_not_there_yet_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    issued = trustme.CA().issue_cert(
        "localhost", not_before=datetime(2020, 1, 1), not_after=datetime(2021, 2, 3)
    )
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    arguments = cli.check_words(
        [
            *("gateway", "--places", str(tmp_path / "none" / "p")),
            *("--history", str(tmp_path / "h"), "--edge", str(tmp_path / "edge")),
            *("--mqtts", "127.0.0.1:0", "--tls-certificate", str(certificate)),
            *("--tls-key", str(key)),
        ]
    )
    command._say_what_is_missing(arguments)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 4
    assert said[0].startswith(f"--places {tmp_path}/none/p: there is no such folder yet")
    assert said[1].startswith(f"--history {tmp_path}/h: there is no such folder yet")
    assert said[2].startswith(f"--edge {tmp_path}/edge: there is no such socket yet")
    assert said[3].startswith(f"--tls-certificate {certificate}: the certificate has expired on ")
    assert said[3].endswith("on 2021-02-03 00:00 UTC; clients that verify it do not connect")


def test_a_key_may_have_any_level_where_topics_have_any_number() -> None:
    assert parse_rule("plant/#=t:{9}").key == "{9}"
    assert parse_rule("plant/+=t:{2}").key == "{2}"
