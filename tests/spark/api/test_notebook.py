"""The notebook for Spark runs from its first cell to its last, and draws its pictures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.spark.places.test_job import table_of, write_history
from tests.spark.running import ROOT
from tests.spark.synthetic import make_person

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600)]

#: In a process of its own: nbclient leaves sockets to the end of the process.
_PROGRAM: Final = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, timeout=400, kernel_name="python3").execute(cwd=".")
nbformat.write(notebook, "done.ipynb")
"""


def test_the_notebook_runs(tmp_path: Path) -> None:
    people = {f"demo/phone{seed}": make_person(seed, 12) for seed in range(2)}
    write_history(tmp_path / "history", table_of(people))
    path = ROOT / "examples/spark.ipynb"
    assert all(not cell.get("outputs") for cell in json.loads(path.read_text())["cells"])
    subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(path)],
        cwd=tmp_path,
        env=os.environ
        | {
            "WAYLOG_HISTORY": str(tmp_path / "history"),
            "PYTHONPATH": str(ROOT),
            "IPYTHONDIR": str(tmp_path / "ipython"),
        },
        check=True,
    )
    cells = json.loads((tmp_path / "done.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    assert kinds.count("image/png") == 3
    texts = "".join("".join(output.get("text", [])) for output in outputs)
    assert "home" in texts
    tables = ["".join(output["data"]["text/html"]) for output in outputs
              if "text/html" in output.get("data", {})]  # fmt: skip
    assert any("Berlin" in table for table in tables)
