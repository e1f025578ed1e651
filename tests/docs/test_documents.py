"""The commands in README.md and docs/ work: they are run, or their words are checked."""

from __future__ import annotations

import base64
import json
import queue
import re
import shlex
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from geoservice.reverse.geocoder import Geocoder
from tests.command_help import help_of
from tests.end_to_end.running import Platform, start_platform
from waylog.cli import COMMANDS
from waylog.config import parse_endpoint

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shell_lines(path: Path) -> list[str]:
    """Return the commands in a document's shell blocks, with continued lines joined."""
    text = "\n".join(SHELL_BLOCK.findall(path.read_text(encoding="utf-8")))
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def test_prose_fits_in_120_columns() -> None:
    long: list[str] = []
    for path in (*DOCUMENTS, ROOT / "CHANGELOG.md"):
        in_block = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            in_block ^= line.lstrip().startswith("```")
            if len(line) > 120 and not in_block and not line.startswith("|"):
                long.append(f"{path.relative_to(ROOT)}:{number}")
    assert not long


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    running = start_platform(tmp_path_factory.mktemp("docs") / "data", "--no-history")
    yield running
    running.stop()
    assert running.process.stdout is not None
    running.process.stdout.close()


def test_the_first_fix_of_the_readme_comes_back_as_an_address(
    platform: Platform, tmp_path: Path
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed: apt-get install curl")
    lines = [line for line in shell_lines(ROOT / "README.md") if re.match(r"TOKEN=|curl ", line)]
    assert len(lines) == 3
    # The resolver works after the acknowledgement: ask until it has answered.
    lines[-1] = f"for i in $(seq 100); do {lines[-1]} | grep Vaduz && break; sleep 0.1; done"
    script = "\n".join(lines).replace("127.0.0.1:8080", platform.http)
    script = script.replace("data/demo.token", str(platform.data / "demo.token"))
    done = subprocess.run(
        ["bash", "-ec", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert '"accepted":1' in done.stdout.replace(" ", "")
    assert "Vaduz" in done.stdout


def test_the_second_fix_of_the_readme_comes_back_over_mqtt(platform: Platform) -> None:
    lines = [line for line in shell_lines(ROOT / "README.md") if line.startswith("mosquitto_")]
    words = {line.split()[0]: shlex.split(line)[1:] for line in lines}
    publish, subscribe = (
        dict(zip(each[::2], each[1::2], strict=True))
        for each in (words["mosquitto_pub"], words["mosquitto_sub"])
    )
    endpoint = parse_endpoint(platform.mqtt)
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.username_pw_set(publish["-u"], platform.demo_token)
    found: queue.Queue[bytes] = queue.Queue()
    client.on_message = lambda _client, _data, message: found.put(bytes(message.payload))
    client.connect(endpoint.host, endpoint.port)
    client.loop_start()
    try:
        client.subscribe(subscribe["-t"], 1)
        client.publish(publish["-t"], publish["-m"], int(publish["-q"])).wait_for_publish(90)
        # The address of the fix that was sent over HTTP may come first, as a retained message.
        while "Schaan" not in (name := json.loads(found.get(timeout=90))["display_name"]):
            assert "Vaduz" in name
        assert name == "Schaan, Liechtenstein"
    finally:
        client.disconnect()
        client.loop_stop()


def test_the_geocoder_answers_the_points_of_the_readme_rightly() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    points = re.findall(r'"lat": ?([\d.]+), ?"lon": ?([\d.]+)', text)
    points += re.findall(r"geo reverse ([\d.]+) ([\d.]+)", text)
    assert len(points) >= 3
    geocoder = Geocoder.open()
    for lat, lon in points:
        address = geocoder.reverse(float(lat), float(lon)).address
        # Both examples are in the middle of a town in Liechtenstein.
        assert address["country_code"] == "li", (lat, lon, address)


def test_a_target_that_needs_the_tests_packages_installs_them() -> None:
    for target in ("docs", "test", "test-long", "lint", "bench", "sim"):
        done = subprocess.run(
            ["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert "deploy/setup.sh test" in done.stdout, target


def test_a_track_is_replayed_as_the_readme_says(platform: Platform, tmp_path: Path) -> None:
    (tmp_path / "track.gpx").write_text(
        '<gpx version="1.1" creator="test" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>'
        '<trkpt lat="47.1" lon="9.5"><time>2026-01-02T03:04:05Z</time></trkpt>'
        '<trkpt lat="47.2" lon="9.5"><time>2026-01-02T03:05:05Z</time></trkpt>'
        "</trkseg></trk></gpx>"
    )
    (line,) = [line for line in shell_lines(ROOT / "README.md") if "waylog replay" in line]
    words = shlex.split(line.replace("data/demo.token", str(platform.data / "demo.token")))[2:]
    words[0] = str(tmp_path / words[0])
    printed = platform.waylog("replay", *words, "--gateway", platform.url, "--json")
    assert '"acknowledged":2' in printed.replace(" ", "")


def test_the_audit_answers_as_its_page_says(platform: Platform) -> None:
    token = f"Basic {base64.b64encode(f'demo:{platform.demo_token}'.encode()).decode()}"
    sent = urllib.request.Request(
        f"{platform.url}/v1/positions", b'{"lat":47.141,"lon":9.5209}', {"Authorization": token}
    )
    with urllib.request.urlopen(sent, timeout=60) as answer:
        (identity,) = json.load(answer)["ids"]
    lines = [
        line for line in shell_lines(ROOT / "docs" / "audit.md") if line.startswith("waylog audit ")
    ]
    assert len(lines) >= 6
    for line in lines:
        words = [identity if word.startswith("019c") else word for word in shlex.split(line)[1:]]
        printed = platform.waylog(*words, "--bootstrap-servers", platform.kafka)
        assert "lacking" in printed or "nothing is missing" in printed, line
    asked = urllib.request.Request(
        f"{platform.url}/v1/devices/demo%2Fdefault/receipts", headers={"Authorization": token}
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert json.load(answer)["acknowledged"] >= 1


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_in_a_document_exists(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    names = {command.name for command in COMMANDS}
    text = path.read_text(encoding="utf-8")
    commands = re.findall(r"`(waylog [a-z][^`\n]*)`", text)
    commands += [line for line in shell_lines(path) if re.match(r"(\S*/)?waylog ", line)]
    for command in commands:
        words = shlex.split(command.replace("...", ""))
        if words[1].isupper():
            continue  # `waylog COMMAND --help`
        assert words[1] in names, command
        options = [word.split("=")[0] for word in words if word.startswith("--")]
        if options:
            assert_options(words[1:], options)
    for target in re.findall(r"`make ([a-z-]+)`", text) + [
        line.split()[1] for line in shell_lines(path) if line.startswith("make ")
    ]:
        assert target in targets, f"make {target}"


def assert_options(words: list[str], options: list[str]) -> None:
    """Check that the help of the command, or of its action, names the options."""
    texts = help_of(words)
    for option in options:
        assert option in texts, f"waylog {' '.join(words)}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_into_the_tree_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_the_architecture_names_files_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    folder = ROOT
    for line in text.splitlines():
        if heading := re.match(r"## .*?`(\w+)/`", line):
            folder = ROOT / heading[1]
        for name in re.findall(r"`((?:\w+/)*\w+\.pyx?)`", line):
            assert (folder / name).exists() or (ROOT / name).exists(), name


def test_the_architecture_names_what_its_files_define() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+\.)?\w+)`\s+\(`([\w/]+\.pyx?)`\)", text)
    assert len(named) > 50
    for name, path in named:
        source = (ROOT / path).read_text(encoding="utf-8")
        for part in name.split("."):
            defined = (
                rf"^\s*(?:cdef )?class {part}\b",
                rf"^\s*(?:async )?(?:def|cdef|cpdef) [^(=\n]*\b{part}\(",
                rf"^\s*(?:self\.)?{part}\b\s*[:=]",
            )
            assert re.search("|".join(defined), source, re.MULTILINE), f"{name} in {path}"


def test_decisions_are_numbered_without_holes_as_their_titles_say() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert pages
    for number, page in enumerate(pages, start=1):
        assert page.name.startswith(f"{number:04d}-"), f"{page.name} is page {number}"
        title = page.read_text(encoding="utf-8").splitlines()[0]
        assert title.startswith(f"# {number}. "), f"{page.name}: {title}"
