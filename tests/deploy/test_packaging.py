"""Installation by name: version ranges in the metadata, exact versions in the lock, wheels."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from waylog.extras import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GENERATED = ("geoservice/world/world.bin", "gateway/web/vendor/", "gateway/web/world/")
PACKAGES = ("broker_core", "consumers", "gateway", "geoservice", "load_tests", "spark", "waylog")


def requirements() -> list[Requirement]:
    texts = [*PROJECT["dependencies"]]
    for extra in PROJECT["optional-dependencies"].values():
        texts += extra
    return [Requirement(text) for text in texts]


def lock() -> dict[str, str]:
    lines = (ROOT / "deploy/constraints.txt").read_text().split()
    pairs = [line.partition("==")[::2] for line in lines]
    return {canonicalize_name(name): version for name, version in pairs}


def tracked(*patterns: str) -> list[str]:
    done = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("not a checkout of git")
    return [line for line in done.stdout.splitlines() if (ROOT / line).exists()]


def test_the_metadata_has_ranges_that_the_locked_versions_are_in() -> None:
    locked = lock()
    for requirement in requirements():
        version = locked[canonicalize_name(requirement.name)]
        assert version in requirement.specifier, requirement
        operators = {each.operator for each in requirement.specifier}
        assert ">=" in operators, f"{requirement} has no oldest version"
        assert not operators & {"==", "===", "~="}, f"{requirement} is pinned outside the lock"


def test_the_lock_names_exact_versions_only() -> None:
    for line in (ROOT / "deploy/constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line), line


def names_of(requirement: Requirement) -> set[str]:
    """Return the distributions that a requirement names, those of its extras too."""
    found: set[str] = {canonicalize_name(requirement.name)}
    for extra in requirement.extras:
        for text in requires(requirement.name) or ():
            other = Requirement(text)
            if other.marker and other.marker.evaluate({"extra": extra}):
                found.add(canonicalize_name(other.name))
    return found


def test_each_module_of_an_extra_comes_with_that_extra() -> None:
    distributions = packages_distributions()
    for extra, modules in EXTRAS.items():
        named = set().union(
            *(names_of(Requirement(text)) for text in PROJECT["optional-dependencies"][extra])
        )
        for module in modules:
            if module in distributions:  # some are installed only by `make fuzz` and the like
                brought_by = {canonicalize_name(name) for name in distributions[module]}
                assert brought_by & named, f"{module} is not brought by waylog[{extra}]"


#: The usual ports may be those of a platform that runs on this machine.
ANY_PORTS = [word for name in ("http", "mqtt", "kafka") for word in (f"--{name}", "127.0.0.1:0")]


@pytest.mark.parametrize(
    ("blocked", "words", "line"),
    [
        ("pyspark", ["up", "--data", "{folder}", *ANY_PORTS], "waylog[spark]"),
        ("lxml", ["replay", "{folder}/a.gpx"], "waylog[replay]"),
        ("osmium", ["geo", "import", "{folder}/a.osm.pbf", "-o", "{folder}/i"], "waylog[geo]"),
    ],
)
def test_a_command_without_its_libraries_says_what_to_install(
    tmp_path: Path, blocked: str, words: list[str], line: str
) -> None:
    (tmp_path / "a.gpx").write_text(
        '<gpx version="1.1"><trk><trkseg><trkpt lat="1" lon="1">'
        "<time>2026-01-01T00:00:00Z</time></trkpt></trkseg></trk></gpx>"
    )
    (tmp_path / "a.osm.pbf").write_bytes(b"")
    program = (
        f"import sys; sys.modules[{blocked!r}] = None\n"
        "from waylog.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *(word.format(folder=tmp_path) for word in words)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert f"pip install '{line}'" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_compiled_uses_no_private_interface_of_cpython() -> None:
    done = subprocess.run(
        ["bash", "deploy/check_private_api.sh"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_the_check_for_private_interfaces_finds_one(tmp_path: Path) -> None:
    (tmp_path / "planted.pyx").write_text("cdef extern from *:\n    int _PyLong_Sign(object n)\n")
    done = subprocess.run(
        ["bash", str(ROOT / "deploy/check_private_api.sh"), str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "_PyLong_Sign" in done.stdout


def test_packages_hold_every_file_that_the_code_reads(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env={"WAYLOG_SKIP_EXTENSIONS": "1", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    built = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert set(tracked(*PACKAGES)) <= built
    for generated in GENERATED:
        assert any(path.startswith(generated) for path in built), generated


@pytest.mark.long
def test_a_wheel_has_the_right_tag_and_starts_elsewhere(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
         "-w", str(tmp_path), str(ROOT)],
        check=True, timeout=900,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    tags = parse_wheel_filename(wheel.name)[3]
    assert {tag.abi for tag in tags} == {f"cp{sys.version_info[0]}{sys.version_info[1]}"}
    assert tags <= set(sys_tags()) | {next(iter(tags))}
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    done = subprocess.run(
        [sys.executable, "-P", "-c",
         "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
         "from waylog.cli import main; import waylog.cli\n"
         "assert waylog.cli.__file__.startswith(sys.path[0]), waylog.cli.__file__\n"
         "sys.exit(main(sys.argv[1:]))",
         str(tmp_path / "installed"), "geo", "reverse", "47.1410", "9.5209"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Vaduz" in done.stdout


def test_a_wheel_without_its_extensions_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "bdist_wheel", "-d", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env={"WAYLOG_SKIP_EXTENSIONS": "1", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode != 0
    assert "WAYLOG_SKIP_EXTENSIONS" in done.stderr
    assert not list(tmp_path.iterdir())
