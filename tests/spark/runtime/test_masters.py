"""Spark's master: what is refused before Spark starts."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path

import pytest

from spark.runtime.masters import check_master, check_master_form
from tests.ports import reserved_ports
from waylog.cli import CommandError
from waylog.config import ConfigError


@pytest.mark.parametrize(
    "master", ["local", "local[2]", "local[*]", "local[*, 3]", "local-cluster[2,1,1024]"]
)
def test_local_ones_are_taken(master: str) -> None:
    check_master_form(master)
    check_master(master, {})


@pytest.mark.parametrize(
    "master",
    [
        *("mesos://x", "nonsense", "local[2", "", "k8s://", "spark://"),
        *("local[x]", "local[0]", "local[]", "local[-1]", "local-cluster", "local-cluster[2]"),
    ],
)
def test_what_spark_does_not_know_is_refused(master: str) -> None:
    for check in (check_master_form, partial(check_master, environment={})):
        with pytest.raises(ConfigError, match="--master ") as refused:
            check(master)
        assert "expected" in str(refused.value)


def test_a_cluster_that_does_not_answer_is_named() -> None:
    (port,) = reserved_ports(1)
    for master in (f"spark://127.0.0.1:{port}", f"k8s://https://127.0.0.1:{port}"):
        with pytest.raises(
            CommandError, match=f"nothing answers there .*{port}: Connection refused"
        ):
            check_master(master, {})


def test_one_of_several_masters_is_enough() -> None:
    (port,) = reserved_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = server.getsockname()[1]
        check_master(f"spark://127.0.0.1:{port},127.0.0.1:{there}", {})
        check_master(f"k8s://http://127.0.0.1:{there}", {})


def test_yarn_needs_its_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="HADOOP_CONF_DIR or YARN_CONF_DIR"):
        check_master("yarn", {})
    with pytest.raises(ConfigError, match="no such folder"):
        check_master("yarn", {"YARN_CONF_DIR": str(tmp_path / "none")})
    check_master("yarn", {"HADOOP_CONF_DIR": str(tmp_path)})
