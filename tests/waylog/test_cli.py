from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from waylog.cli import COMMANDS, EXIT_INTERRUPTED


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


def test_the_package_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "waylog", "topics", "--help"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == waylog("topics", "--help").stdout


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


#: Says so once the command's modules begin to be loaded, and is slow then.
SLOW_IMPORT = """
import builtins, os, signal, sys, time
# A shell without job control starts what it starts in the background with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
ordinary = builtins.__import__
def slow(name, *words):
    if name == "confluent_kafka":
        print("loading", flush=True)
        # A signal just before a long sleep begins would not end it.
        for _ in range(600):
            time.sleep(0.1)
    return ordinary(name, *words)
builtins.__import__ = slow
sys.argv[0] = "waylog"
from waylog.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "words", [("gateway",), ("resolver",), ("history", "run"), ("topics", "list"), ("produce", "t")]
)
def test_an_interrupt_while_a_command_loads_ends_it_quietly(words: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_IMPORT, *words, "--bootstrap-servers", "127.0.0.1:1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, "")
    assert EXIT_INTERRUPTED == 130
