"""kcat (Debian's 1.7.1, with a librdkafka of 2022) against our broker."""

from __future__ import annotations

import json
import shutil
import subprocess
import uuid

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


@pytest.fixture(autouse=True)
def _installed() -> None:
    if shutil.which("kcat") is None:
        pytest.skip("kcat not found: apt-get install kcat")


@pytest.fixture
def topic() -> str:
    """Give a name that was not used before; the broker creates the topic."""
    return f"test-{uuid.uuid4().hex[:12]}"


def kcat(bootstrap_servers: str, *arguments: str, given: str = "") -> str:
    """Run kcat, which must succeed; return its output."""
    done = subprocess.run(
        ["kcat", "-b", bootstrap_servers, "-q", *arguments],
        input=given, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_reads_what_it_wrote(bootstrap_servers: str, topic: str, codec: str) -> None:
    lines = "".join(f"key {number}:value {number}\n" for number in range(1000))
    kcat(bootstrap_servers, "-P", "-t", topic, "-p", "0", "-K:", "-z", codec, given=lines)
    assert kcat(bootstrap_servers, "-C", "-t", topic, "-p", "0", "-K:", "-e") == lines
    last = kcat(bootstrap_servers, "-C", "-t", topic, "-p", "0", "-o", "-1", "-e", "-J")
    assert json.loads(last)["offset"] == 999


def test_kcat_writes_idempotently_and_in_a_transaction(bootstrap_servers: str, topic: str) -> None:
    kcat(
        bootstrap_servers, "-P", "-t", topic, "-X", "enable.idempotence=true",
        "-X", f"transactional.id={topic}", "-H", "colour=red", given="one\ntwo\n",
    )  # fmt: skip
    read = kcat(
        bootstrap_servers, "-C", "-t", topic, "-e", "-X", "isolation.level=read_committed",
        "-f", "%s %h\\n",
    )  # fmt: skip
    assert sorted(read.splitlines()) == ["one colour=red", "two colour=red"]


def test_kcat_is_a_member_of_a_group(bootstrap_servers: str, topic: str) -> None:
    kcat(bootstrap_servers, "-P", "-t", topic, given="one\ntwo\nthree\n")
    group = ("-G", f"group-{topic}", "-X", "auto.offset.reset=earliest", "-e")
    first = kcat(bootstrap_servers, *group, topic)
    assert sorted(first.split()) == ["one", "three", "two"]
    kcat(bootstrap_servers, "-P", "-t", topic, given="four\n")
    assert kcat(bootstrap_servers, *group, topic).split() == ["four"]


def test_kcat_lists_the_cluster_and_asks_for_an_offset_by_time(
    bootstrap_servers: str, topic: str
) -> None:
    kcat(bootstrap_servers, "-P", "-t", topic, "-p", "0", given="one\ntwo\n")
    listed = json.loads(kcat(bootstrap_servers, "-L", "-J"))
    assert topic in {each["topic"] for each in listed["topics"]}
    assert listed["brokers"][0]["name"] == bootstrap_servers
    assert f"{topic} [0] offset 0" in kcat(bootstrap_servers, "-Q", "-t", f"{topic}:0:1000")
