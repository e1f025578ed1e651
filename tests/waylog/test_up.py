"""What `waylog up` tells the processes that it starts."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from waylog.config import ConfigError, DataDirectory
from waylog.up import _Platform, add_arguments


def gateway_words(folder: Path, *words: str) -> list[str]:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    free = ("--http", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--kafka", "127.0.0.1:0")
    platform = _Platform.plan(parser.parse_args([*free, *words]), DataDirectory(folder))
    return list(platform._gateway(1).argv)


def test_what_is_said_about_proxies_and_push_reaches_the_gateway(tmp_path: Path) -> None:
    proxies = ("--trusted-proxy", "10.0.0.0/8", "--trusted-proxy", "::1", "--proxy-protocol")
    contact = ("--push-contact", "mailto:ops@example.org")
    words = gateway_words(tmp_path, *proxies, *contact)
    start = words.index("--trusted-proxy")
    assert tuple(words[start : start + len(proxies) + 2]) == proxies + contact


def test_names_and_who_reads_metrics_reach_the_gateway(tmp_path: Path) -> None:
    hosts = ("--host", "map.example", "--host", "map.example:8443")
    words = gateway_words(tmp_path, *hosts, "--metrics-access", "user")
    start = words.index("--host")
    assert tuple(words[start : start + 6]) == (*hosts, "--metrics-access", "user")
    assert words[words.index("--metrics-token-file") + 1] == str(tmp_path / "metrics.token")


def test_other_options_of_the_gateway_are_passed_on_as_words(tmp_path: Path) -> None:
    words = gateway_words(tmp_path, "--gateway-options=--tls-key 'my key.pem'")
    assert words[words.index("--tls-key") + 1] == "my key.pem"
    with pytest.raises(ConfigError, match="--gateway-options"):
        gateway_words(tmp_path, "--gateway-options='")
