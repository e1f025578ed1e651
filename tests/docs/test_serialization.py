"""The commands of docs/serialization.md, on a platform with a schema registry."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.test_documents import ROOT, shell_lines
from tests.end_to_end.running import start_platform
from tests.ports import reserved_ports


def test_avro_goes_in_and_out_as_the_page_says(tmp_path: Path) -> None:
    first, *lines = shell_lines(ROOT / "docs" / "serialization.md")
    assert first == "waylog up --schema-registry 127.0.0.1:8081"
    registry = f"127.0.0.1:{reserved_ports(1)[0]}"
    platform = start_platform(tmp_path / "data", "--no-history", "--schema-registry", registry)
    try:
        script = "\n".join(lines).replace("127.0.0.1:8081", registry)
        script = re.sub(r"\bwaylog ", f"{sys.executable} -m waylog.cli ", script)
        for command in ("topics create trips", "produce trips", "consume trips"):
            servers = f"{command} --bootstrap-servers {platform.kafka}"
            assert command in script
            script = script.replace(command, servers)
        done = subprocess.run(
            ["bash", "-ec", script],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
            env=os.environ
            | {"WAYLOG_DATA": str(platform.data), "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert done.returncode == 0, done.stderr
        assert '{"city":"Wien","km":12.5}' in done.stdout
        assert platform.processes()["schema-registry"]["ready"]
        platform.kill("schema-registry")
        consume = script[script.index(f"{sys.executable} -m waylog.cli consume") :]
        again = subprocess.run(
            ["bash", "-ec", consume],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert '{"city":"Wien","km":12.5}' in again.stdout, again.stderr
    finally:
        platform.stop()
        assert platform.process.stdout is not None
        platform.process.stdout.close()
