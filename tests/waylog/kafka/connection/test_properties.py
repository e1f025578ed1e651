"""Properties of Java clients are translated to those of librdkafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from waylog.config import ConfigError
from waylog.kafka.clients import client_config
from waylog.kafka.connection.properties import client_properties


def test_a_file_for_kafkas_own_tools_serves() -> None:
    properties = client_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": 'ScramLoginModule required username="a" password="q\\"uote";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.location": "/key.pem",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert properties == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "a",
        "sasl.password": 'q"uote',
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/key.pem",
        "ssl.key.location": "/key.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_librdkafkas_names_stay() -> None:
    given = {"sasl.username": "a", "sasl.password": "b", "ssl.ca.location": "/ca.pem"}
    assert client_properties(given) == given


def test_javas_key_stores_are_refused() -> None:
    with pytest.raises(ConfigError, match="PEM"):
        client_properties({"ssl.truststore.location": "/trust.jks"})


def test_the_environment_names_the_file_of_all_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    assert "security.protocol" not in client_config("h:1", "x")
    monkeypatch.setenv("WAYLOG_KAFKA_CONFIG", str(file))
    assert client_config("h:1", "x")["security.protocol"] == "SSL"
