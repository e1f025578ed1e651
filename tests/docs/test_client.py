"""The programs of docs/client.md, on a platform as `waylog up` starts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.test_documents import ROOT, platform
from tests.end_to_end.running import Platform

__all__ = ["platform"]

_PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_programs_run_as_they_stand(platform: Platform, tmp_path: Path) -> None:
    programs = _PYTHON_BLOCK.findall((ROOT / "docs" / "client.md").read_text(encoding="utf-8"))
    environment = os.environ | {
        "WAYLOG_URL": platform.url,
        "WAYLOG_USER": "demo",
        "WAYLOG_TOKEN": platform.demo_token,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    printed = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            cwd=tmp_path,
            timeout=120,
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        ).stdout
        for program in programs
    ]
    sending, reading, live = printed
    assert sending == "1 stored, 0 rejected\n"
    assert "demo/bicycle 47." in reading
    assert "61 points" in reading
    assert " km\n" in reading
    assert re.search(r"^40[34] ", reading, re.MULTILINE)
    assert "<gpx" in (tmp_path / "bicycle.gpx").read_text(encoding="utf-8")
    assert "is at 47.165" in live
    assert "that is " in live
