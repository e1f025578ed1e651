"""The connectors of docs/connect.md are valid as they are written there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from consumers.connect.java.properties_file import parse_properties
from consumers.connect.plugins.registry import ConnectorRegistry

ROOT = Path(__file__).parents[3]


def documented() -> list[str]:
    """Return the commands of the page that write the properties of a connector."""
    text = (ROOT / "docs/connect.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    commands = [each for block in blocks for each in re.findall(r"printf (?:.*\\\n)*.*\n", block)]
    return [each for each in commands if "connector.class=" in each]


@pytest.mark.parametrize("command", documented(), ids=lambda each: each.split("> ")[-1].strip())
def test_a_documented_connector_is_valid(command: str, tmp_path: Path) -> None:
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    (path,) = tmp_path.glob("*.properties")
    # What a provider would answer.
    properties = {
        name: re.sub(r"\$\{\w+:[^}]*\}", "secret", value)
        for name, value in parse_properties(path.read_text()).items()
    }
    connector = ConnectorRegistry().find(properties["connector.class"]).connector()
    found = connector.validate(properties)
    assert not {each.name: each.errors for each in found.values() if each.errors}
    connector.start(properties)
    unread = {
        name
        for name in properties
        if name not in connector.config_def.keys
        and not name.startswith(("headers.", "value.converter", "key.converter"))
        and name not in ("name", "connector.class", "topics")
    }
    assert not unread


def test_there_is_an_example_for_each_connector() -> None:
    text = "".join(documented())
    names = ("PostgreSqlSink", "HttpSink", "HttpSource", "TrackFileSink", "MqttSource", "MqttSink")
    assert not [name for name in names if f"connector.class={name}" not in text]
