from __future__ import annotations

from pathlib import Path

import pytest

from waylog.cli import CommandError
from waylog.config import Endpoint, load_properties
from waylog.network.free_ports import FreePorts
from waylog.supervision.broker_processes import BrokerProcesses


def plan(folder: Path, count: int) -> BrokerProcesses:
    ports = FreePorts()
    first = ports.settle(Endpoint("127.0.0.1", 0))
    return BrokerProcesses.plan(folder, first, count, ports)


def written(folder: Path, count: int) -> list[dict[str, str]]:
    processes = plan(folder, count)
    specs = processes.specs()
    assert len(specs) == count
    return [load_properties(Path(spec.argv[-1])) for spec in specs]


def test_one_broker_acknowledges_after_its_own_disk_has_it(tmp_path: Path) -> None:
    (properties,) = written(tmp_path, 1)
    assert properties["log.flush.interval.messages"] == "1"
    assert properties["node.id"] == "0"
    assert "controller.quorum.voters" not in properties


def test_three_brokers_vote_and_have_everything(tmp_path: Path) -> None:
    processes = plan(tmp_path, 3)
    assert len(set(processes.bootstrap_servers.split(","))) == 3
    for properties in written(tmp_path, 3):
        assert properties["process.roles"] == "broker,controller"
        assert len(properties["controller.quorum.voters"].split(",")) == 3
        assert properties["default.replication.factor"] == "3"
        assert properties["offsets.topic.replication.factor"] == "3"
        assert properties["min.insync.replicas"] == "2"


@pytest.mark.parametrize(("count", "voters", "factor"), [(2, 1, "2"), (5, 3, "3")])
def test_of_more_or_fewer_brokers_an_odd_number_votes(
    tmp_path: Path, count: int, voters: int, factor: str
) -> None:
    roles = [each["process.roles"] for each in written(tmp_path, count)]
    assert roles == ["broker,controller"] * voters + ["broker"] * (count - voters)
    assert written(tmp_path, count)[0]["default.replication.factor"] == factor


@pytest.mark.parametrize(("there", "wanted"), [(["0"], 3), (["1", "2", "3"], 1), (["1", "2"], 1)])
def test_the_data_of_other_brokers_is_left_alone(
    tmp_path: Path, there: list[str], wanted: int
) -> None:
    for name in there:
        logs = tmp_path / name / "logs"
        logs.mkdir(parents=True)
        (logs / "meta.properties").write_text("version=1\n")
    with pytest.raises(CommandError, match="--brokers"):
        plan(tmp_path, wanted)
