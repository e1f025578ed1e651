"""How topologies are found, and those of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from consumers.streams import registry
from consumers.streams.processor import Topology
from consumers.streams.properties import Properties, of_topologies
from tests.consumers.streams.harness import Driven, make_fix
from waylog.cli import check_words
from waylog.config import ConfigError

PAGE = Path(__file__).parents[3] / "docs" / "streams.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def example(tmp_path: Path, number: int) -> Topology:
    path = tmp_path / f"example{number}.py"
    path.write_text(EXAMPLES[number])
    return registry.find_in_file(path, None)(Properties())


def test_the_operators_of_the_page_count_fixes_by_user(tmp_path: Path) -> None:
    topology = example(tmp_path, 0)
    assert topology.name == "fixes-by-user"
    first, second = (Driven(each) for each in topology.processors())
    outputs = first.send(
        *(make_fix(i, device=name, accuracy=accuracy)
          for i, (name, accuracy) in enumerate([("a/b", 5.0), ("a/c", 5.0), ("a/b", 500.0)]))
    )  # fmt: skip
    assert {each.topic for each in outputs} == {"streams-fixes-by-user-repartition"}
    [result] = second.send(*(each.value for each in outputs if each.value is not None))
    assert (result.topic, result.value) == ("fixes-by-user", b"2")


def test_the_class_of_the_page_tells_the_way_of_each_device(tmp_path: Path) -> None:
    topology = example(tmp_path, 1)
    assert len(EXAMPLES[1].splitlines()) < 35
    driven = Driven(topology.processors()[0])
    driven.send(make_fix(0, 0.0, 0.0), make_fix(1, 0.0, 1.0))
    driven.restart()
    outputs = driven.send(make_fix(2, 0.0, 2.0), make_fix(1, 5.0, 5.0))
    assert [round(msgspec.json.decode(each.value) / 1000) for each in outputs] == [222]


def test_topologies_have_names_and_summaries() -> None:
    needed = {
        "convert": {"from": "a", "to": "b", "schema.registry.url": "http://127.0.0.1:1"},
    }
    names = {"convert", "geofences", "heat-map", "meetings", "silence", "speed", "trips"}
    assert names <= set(registry.names())
    for name in registry.names():
        topology = registry.find(name)(Properties(needed.get(name)))
        assert topology.name == name
        for processor in topology.processors():
            processor.close()
        assert "to topic" in registry.summary(name)
    with pytest.raises(ConfigError, match=r"there is no topology tripps; there are: .*speed"):
        registry.find("tripps")


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("x = 1", None, "the file defines no topology"),
        ("raise ValueError('no')", None, "ValueError: no"),
        ("import nothing_of_the_kind", None, "ModuleNotFoundError"),
        ("from consumers.streams.speed import Speed", None, "the file defines no topology"),
        ("from consumers.streams.speed import Speed\nclass A(Speed): name = 'a'\n"
         "class B(Speed): name = 'b'", None, "name one of its topologies: a, b"),
        ("from consumers.streams.speed import Speed\nclass A(Speed): name = 'a'", "c",
         "it has no topology c, but: a"),
    ],
)  # fmt: skip
def test_a_file_with_a_mistake_is_refused(
    tmp_path: Path, text: str, name: str | None, message: str
) -> None:
    path = tmp_path / "file.py"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        registry.find_in_file(path, name)
    with pytest.raises(ConfigError, match="there is no such Python file"):
        registry.find_in_file(tmp_path / "other.py", name)


def test_properties_go_to_the_topology_whose_name_they_begin_with() -> None:
    texts = {"speed.limit_kmh": "30", "trips.stay_s": "60", "speed.limit_kmh.ann/car": "90"}
    assert of_topologies(texts, ["speed", "trips"]) == {
        "speed": {"limit_kmh": "30", "limit_kmh.ann/car": "90"},
        "trips": {"stay_s": "60"},
    }
    alone = {"limit_kmh": "30", "limit_kmh.ann": "50", "speed.silence_s": "60"}
    assert of_topologies(alone, ["speed"]) == {
        "speed": {"limit_kmh": "30", "limit_kmh.ann": "50", "silence_s": "60"}
    }
    with pytest.raises(ConfigError, match=r"limit_kmh: say of which topology, .* speed\.limit_kmh"):
        of_topologies({"limit_kmh": "30"}, ["speed", "trips"])
    with pytest.raises(ConfigError, match=r"silence\.factor: say of which topology"):
        of_topologies({"silence.factor": "2"}, ["speed", "trips"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("speed", "speed"), "a topology is named twice"),
        (("speed", "tripps"), "there is no topology tripps"),
        (("speed", "all"), "there is no topology all"),
        ((), "name a topology"),
        (("--module", "x.py", "a", "b"), "--module: name one topology of the file"),
        (("speed", "trips", "--property", "trips.limit_kmh=3"), "topology trips has no such prop"),
    ],
)
def test_a_command_line_with_a_mistake_is_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_words(["streams", "run", *words])


def test_all_are_the_topologies_of_the_list() -> None:
    words = ["streams", "run", "all"]
    for name in registry.names():
        words += ["--property", f"{name}.unknown=1"]
    with pytest.raises(ConfigError, match=f"topology {registry.names()[0]} has no such property"):
        check_words(words)
