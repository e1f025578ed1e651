"""The commands and options in the deployment files exist."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.command_help import help_of
from waylog.config import DataDirectory
from waylog.network.free_ports import FreePorts
from waylog.supervision.platform_plan import PlatformPlan
from waylog.supervision.platform_processes import PlatformProcesses
from waylog.supervision.up import add_arguments

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))


def check_command(words: list[str]) -> None:
    """Check that the subcommand exists and its help names every option that is used."""
    shown = help_of(words)
    for option in (word for word in words if word.startswith("--")):
        assert option in shown, f"waylog {' '.join(words)} has no {option}"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_command_that_exists(path: Path) -> None:
    text = path.read_text()
    command = re.search(r"^ExecStart=\S+/waylog (.+)$", text, re.MULTILINE)
    assert command is not None
    check_command(shlex.split(command[1]))
    assert "[Install]" in text
    assert "Restart=" in text


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_leaves_its_processes_little_of_the_machine(path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed here")
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=30", "--no-pager", str(path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze does not judge files")
    assert done.returncode == 0, done.stdout[-500:] + done.stderr


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_keeps_its_files_private(path: Path) -> None:
    settings = path.read_text().splitlines()
    for wanted in ("UMask=0077", "StateDirectoryMode=0700", "LimitCORE=0", "PrivateTmp=true"):
        assert wanted in settings
    starts_a_jvm = path.stem in ("waylog", "waylog-history")
    assert ("MemoryDenyWriteExecute=true" in settings) == (not starts_a_jvm)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_hears_when_its_process_is_ready_and_when_it_hangs(path: Path) -> None:
    settings = path.read_text().splitlines()
    assert "Type=notify" in settings
    if path.stem != "waylog-history":
        assert "WatchdogSec=60" in settings
    # A child of `waylog up` reports to that, not to systemd: nobody but the main process may.
    assert not [line for line in settings if line.startswith("NotifyAccess=")]


def compose_commands() -> dict[str, list[str]]:
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
    return {
        name: service["command"]
        for name, service in compose["services"].items()
        if "command" in service
    }


def test_compose_starts_commands_that_exist() -> None:
    assert len(compose_commands()) >= 5
    for words in compose_commands().values():
        check_command(words)


def test_each_process_of_waylog_up_has_a_unit_and_a_service_of_compose(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    ports = ("--http", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--kafka", "127.0.0.1:0")
    asked = ("--streams", "all", "--forwarding", "--schema-registry", "127.0.0.1:0")
    plan = PlatformPlan.of(
        parser.parse_args([*ports, *asked]), DataDirectory(tmp_path), FreePorts()
    )
    processes = PlatformProcesses(plan)
    specs = [*processes.beside_brokers(), processes.history_job("history")]
    parts = {each.name.removesuffix("-1") for each in specs}
    assert len(parts) == 7
    assert {path.stem.removeprefix("waylog-") for path in UNITS} == parts | {"broker", "waylog"}
    # Its broker is an Apache Kafka.
    assert compose_commands().keys() - {"topics"} == parts


def test_the_image_runs_the_set_up_that_is_tested() -> None:
    text = (ROOT / "deploy/Containerfile").read_text()
    assert "deploy/setup.sh run" in text
    assert 'ENTRYPOINT ["waylog"]' in text


def test_the_set_up_compiles_the_modules_for_those_who_may_not_write_beside_them() -> None:
    text = (ROOT / "deploy/setup.sh").read_text()
    found = re.search(r"-m compileall -q (.+)$", text, re.MULTILINE)
    assert found is not None
    assert "\nbytecode\n" in text
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = settings["tool"]["setuptools"]["packages"]["find"]["include"]
    assert found[1].split() == [each.removesuffix("*") for each in packages]


def test_the_set_up_is_valid_shell() -> None:
    done = subprocess.run(
        ["bash", "-n", str(ROOT / "deploy/setup.sh")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
