"""The programs of docs/client-javascript.md, in Node, on a platform as `waylog up` starts it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.docs.test_documents import ROOT, platform
from tests.end_to_end.running import Platform

__all__ = ["platform"]

_BLOCK = re.compile(r"^```js\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DOCUMENT = ROOT / "docs" / "client-javascript.md"
_NODE_MIN = 18


def _node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("programs for Node are not run; install: apt-get install nodejs")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if int(told.removeprefix("v").partition(".")[0]) < _NODE_MIN:
        pytest.skip(f"programs for Node are not run: {told.strip()} is older than {_NODE_MIN}")
    return found


def test_the_programs_run_as_they_stand(platform: Platform, tmp_path: Path) -> None:
    node = _node()
    with urllib.request.urlopen(f"{platform.url}/static/js/client/waylog.js") as answer:
        (tmp_path / "waylog.js").write_bytes(answer.read())
    (tmp_path / "package.json").write_text('{"type": "module"}')
    environment = os.environ | {
        "WAYLOG_URL": platform.url,
        "WAYLOG_USER": "demo",
        "WAYLOG_TOKEN": platform.demo_token,
    }
    printed = []
    for program in _BLOCK.findall(_DOCUMENT.read_text(encoding="utf-8")):
        (tmp_path / "program.js").write_text(program, encoding="utf-8")
        printed.append(
            subprocess.run(
                [node, "program.js"],
                env=environment,
                cwd=tmp_path,
                timeout=120,
                check=True,
                text=True,
                stdout=subprocess.PIPE,
            ).stdout
        )
    sending, reading, live = printed
    assert sending == "1 stored, 0 rejected\n"
    assert "demo/scooter 47." in reading
    assert "60 points" in reading
    assert "<?xml\n" in reading
    assert " km\n" in reading
    assert re.search(r"^40[34] ", reading, re.MULTILINE)
    assert "is at 47.165" in live
    assert "that is " in live
