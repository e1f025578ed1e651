from __future__ import annotations

import subprocess
import sys

import pytest

from waylog.cli import COMMANDS


def waylog(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "waylog.cli", *words],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_help_names_every_command() -> None:
    done = waylog("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert command.name in done.stdout


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_every_command_has_help(name: str) -> None:
    done = waylog(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"waylog {name}" in done.stdout


def test_a_wrong_command_is_a_usage_error() -> None:
    done = waylog("fly")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_mistake_is_one_line_without_a_traceback() -> None:
    done = waylog("topics", "list", "--bootstrap-servers", "127.0.0.1:1")
    assert done.returncode == 1
    assert "no Kafka broker answers at 127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_address_is_a_usage_error(tmp_path: object) -> None:
    done = waylog("up", "--data", str(tmp_path), "--http", "nowhere")
    assert done.returncode == 2
    assert "HOST:PORT" in done.stderr
