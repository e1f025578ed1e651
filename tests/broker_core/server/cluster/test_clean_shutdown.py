from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker_core.environment import Environment
from broker_core.server.cluster.clean_shutdown import UNKNOWN, CleanShutdownFile

BOOT = replace(Environment.real(), boot_id="one")
NEXT_BOOT = replace(Environment.real(), boot_id="two")
NAMELESS_BOOT = replace(Environment.real(), boot_id="")


def former_epoch(directory: Path, environment: Environment) -> int:
    return CleanShutdownFile(directory, environment).former_epoch


def test_a_killed_process_leaves_all_that_it_wrote(tmp_path: Path) -> None:
    life = CleanShutdownFile(tmp_path, BOOT)
    assert life.former_epoch == UNKNOWN
    life.begin(17)
    assert former_epoch(tmp_path, BOOT) == 17


@pytest.mark.parametrize("environment", [NEXT_BOOT, NAMELESS_BOOT])
def test_a_machine_without_power_may_not(tmp_path: Path, environment: Environment) -> None:
    CleanShutdownFile(tmp_path, replace(environment, boot_id=environment.boot_id and "one")).begin(
        17
    )
    assert former_epoch(tmp_path, environment) == UNKNOWN


def test_who_has_ended_has_everything_on_the_medium(tmp_path: Path) -> None:
    life = CleanShutdownFile(tmp_path, BOOT)
    life.begin(17)
    life.end()
    assert former_epoch(tmp_path, NEXT_BOOT) == 17
    CleanShutdownFile(tmp_path, NEXT_BOOT).begin(18)
    assert former_epoch(tmp_path, BOOT) == UNKNOWN


def test_what_a_disk_refused_to_take_may_be_missing(tmp_path: Path) -> None:
    life = CleanShutdownFile(tmp_path, BOOT)
    life.begin(17)
    life.distrust()
    life.end()
    assert former_epoch(tmp_path, BOOT) == UNKNOWN


def test_a_damaged_file_is_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    CleanShutdownFile(tmp_path, BOOT).begin(17)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    assert former_epoch(tmp_path, BOOT) == UNKNOWN
    assert "is damaged" in caplog.text
