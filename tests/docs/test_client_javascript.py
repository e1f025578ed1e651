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


class Programs:
    """Runs programs in Node beside the client that a platform serves."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        self._node = _node()
        self._folder = folder
        with urllib.request.urlopen(f"{platform.url}/static/js/client/waylog.js") as answer:
            (folder / "waylog.js").write_bytes(answer.read())
        (folder / "package.json").write_text('{"type": "module"}')
        self._environment = os.environ | {
            "WAYLOG_URL": platform.url,
            "WAYLOG_USER": "demo",
            "WAYLOG_TOKEN": platform.demo_token,
        }

    def run(self, program: str, *options: str) -> str:
        """Return what a program has printed."""
        (self._folder / "program.js").write_text(program, encoding="utf-8")
        return subprocess.run(
            [self._node, *options, "program.js"],
            env=self._environment,
            cwd=self._folder,
            timeout=120,
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        ).stdout


@pytest.fixture
def programs(platform: Platform, tmp_path: Path) -> Programs:
    return Programs(platform, tmp_path)


def test_the_programs_run_as_they_stand(programs: Programs) -> None:
    blocks = _BLOCK.findall(_DOCUMENT.read_text(encoding="utf-8"))
    sending, reading, live = map(programs.run, blocks)
    assert sending == "1 stored, 0 rejected\n"
    assert "demo/scooter 47." in reading
    assert "60 points" in reading
    assert "<?xml\n" in reading
    assert " km\n" in reading
    assert re.search(r"^40[34] ", reading, re.MULTILINE)
    assert "is at 47.165" in live
    assert "that is " in live


def test_a_stream_that_is_old_ends_with_its_signal(programs: Programs) -> None:
    """Node no longer knows the signal of an answer whose request it has collected."""
    program = """
import { Client } from "./waylog.js";

const { WAYLOG_URL: url, WAYLOG_USER: user, WAYLOG_TOKEN: token } = process.env;
const waylog = new Client(url, { user, token });
await waylog.send({ device: "old", lat: 47.165, lon: 9.51 });
const stop = new AbortController();
let begin;
const begun = new Promise((resolve) => { begin = resolve; });
const read = async () => {
  for await (const event of waylog.live({ signal: stop.signal })) begin(event);
};
const ended = read();
await begun;
for (let round = 0; round < 20; round += 1) {
  globalThis.gc();
  await new Promise(setImmediate);
}
stop.abort();
await ended;
console.log("ended");
"""
    assert programs.run(program, "--expose-gc") == "ended\n"
