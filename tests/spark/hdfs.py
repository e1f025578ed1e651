"""A real HDFS with one NameNode and some DataNodes, from packages of Maven Central."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from tests.maven import jars
from tests.ports import reserved_ports

#: Of the same release line as the Hadoop client inside pyspark.
MINICLUSTER = "org.apache.hadoop:hadoop-client-minicluster:3.5.0"


class Hdfs:
    """An HDFS on loopback; `url` is that of its root."""

    def __init__(self, folder: Path, data_nodes: int = 2) -> None:
        self._folder = folder
        self._path = f"{folder}:" + ":".join(
            str(each) for each in sorted(jars("hdfs", MINICLUSTER).glob("*.jar"))
        )
        rpc, self._http = reserved_ports(2)
        self.url = f"webhdfs://127.0.0.1:{self._http}"
        self.spark_url = f"hdfs://127.0.0.1:{rpc}"
        _write(folder / "core-site.xml", {"fs.defaultFS": f"hdfs://127.0.0.1:{rpc}"})
        _write(
            folder / "hdfs-site.xml",
            {
                "dfs.namenode.name.dir": f"file://{folder}/name",
                "dfs.datanode.data.dir": f"file://{folder}/data${{node.number}}",
                "dfs.namenode.rpc-address": f"127.0.0.1:{rpc}",
                "dfs.namenode.http-address": f"127.0.0.1:{self._http}",
                "dfs.datanode.address": "127.0.0.1:0",
                "dfs.datanode.ipc.address": "127.0.0.1:0",
                "dfs.datanode.http.address": "127.0.0.1:0",
                "dfs.datanode.hostname": "127.0.0.1",
                "dfs.replication": str(data_nodes),
                "dfs.permissions.enabled": "false",
                "dfs.namenode.safemode.extension": "0",
            },
        )
        self._processes: list[subprocess.Popen[bytes]] = []
        name_node = "org.apache.hadoop.hdfs.server.namenode.NameNode"
        formatting = self._java(name_node, "-format", "-nonInteractive")
        assert formatting.wait(120) == 0
        self._processes = []
        self._java(name_node)
        for number in range(data_nodes):
            self._java("org.apache.hadoop.hdfs.server.datanode.DataNode", number=number)
        self._await(data_nodes)

    def _java(self, main: str, *words: str, number: int = 0) -> subprocess.Popen[bytes]:
        with (self._folder / f"{main.rpartition('.')[2]}{number}.log").open("ab") as log:
            process = subprocess.Popen(
                ["java", "-Xmx256m", f"-Dnode.number={number}", "-cp", self._path, main, *words],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _await(self, data_nodes: int) -> None:
        address = f"http://127.0.0.1:{self._http}/jmx?qry=Hadoop:service=NameNode,name="
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                beans = {}
                for name in ("FSNamesystemState", "NameNodeInfo"):
                    with urllib.request.urlopen(address + name, timeout=5) as answer:
                        beans[name] = json.load(answer)["beans"][0]
                live = beans["FSNamesystemState"]["NumLiveDataNodes"]
                if live == data_nodes and not beans["NameNodeInfo"]["Safemode"]:
                    return
            except (OSError, KeyError, IndexError, ValueError):
                pass
            time.sleep(0.25)
        logs = "".join(path.read_text()[-800:] for path in self._folder.glob("*.log"))
        pytest.fail(f"HDFS did not come up:\n{logs}")

    def kill_data_node(self) -> None:
        """Kill the last DataNode with SIGKILL; the NameNode keeps naming it for ten minutes."""
        os.kill(self._processes[-1].pid, signal.SIGKILL)
        self._processes.pop().wait(30)

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.kill()
            process.wait(200)


def _write(path: Path, settings: dict[str, str]) -> None:
    rows = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    path.write_text(f"<configuration>{rows}</configuration>")
