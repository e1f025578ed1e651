"""The commands of docs/serialization.md, on a platform with a schema registry."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from tests.consumers.streams.harness import make_fix
from tests.docs.test_documents import ROOT, shell_lines
from tests.end_to_end.running import start_platform
from tests.ports import reserved_ports
from waylog.messages import Fix, encode


def test_avro_goes_in_and_out_as_the_page_says(tmp_path: Path) -> None:
    first, *lines, copying, results = shell_lines(ROOT / "docs" / "serialization.md")
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
        copying, results = (line.replace("127.0.0.1:8081", registry) for line in (copying, results))
        _runs(copying, [make_fix(1)], consume, "location-avro", platform.kafka, tmp_path)
        # A trip, and a rest after it, by which it ends.
        drive = [make_fix(10.0 * n, 47 + 0.001 * min(n, 60)) for n in range(200)]
        _runs(results, drive, consume, "trip", platform.kafka, tmp_path)
    finally:
        platform.stop()
        assert platform.process.stdout is not None
        platform.process.stdout.close()


def _runs(
    command: str, fixes: list[Fix], consume: str, topic: str, servers: str, folder: Path
) -> None:
    """Run a topology, and read what it makes of fixes as the page reads Avro."""
    program = f"{sys.executable} -m waylog.cli"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = shlex.split(command.replace("waylog", program, 1))
    running = subprocess.Popen(
        [*words, "--bootstrap-servers", servers], cwd=folder, env=environment,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        subprocess.run(
            [*program.split(), "produce", "location", "--bootstrap-servers", servers],
            input="\n".join(encode(fix).decode() for fix in fixes),
            text=True, check=True, cwd=folder, env=environment,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        read = ""
        while f'"device":"{fixes[0].device}"' not in read:
            assert time.monotonic() < deadline, read
            done = subprocess.run(
                ["bash", "-ec", consume.replace("consume trips", f"consume {topic}")],
                capture_output=True, text=True, check=False, cwd=folder, env=environment,
            )  # fmt: skip
            read = done.stdout
    finally:
        running.terminate()
        running.wait(60)
