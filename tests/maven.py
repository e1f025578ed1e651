"""Jars from Maven Central, fetched once into the user's cache; tests skip without them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>waylog</groupId><artifactId>{name}</artifactId><version>1</version>
  <packaging>pom</packaging>
  <!-- Spark's parent names a further repository; the same id here keeps Maven to Central. -->
  <repositories><repository>
    <id>gcs-maven-central-mirror</id><url>https://repo.maven.apache.org/maven2</url>
  </repository></repositories>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


def jars(name: str, *artifacts: str, alone: bool = False) -> Path:
    """Return the folder with artifacts `group:name:version`, with dependencies unless `alone`."""
    missing = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if missing:
        pytest.skip(
            f"{' and '.join(missing)} not found: apt-get install openjdk-17-jre-headless maven"
        )
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "waylog"
    folder = cache / name
    wanted = "\n".join(artifacts)
    complete = folder / "complete"
    if complete.exists() and complete.read_text() == wanted:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    exclusions = _ALONE if alone else ""
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
        "{}</dependency>".format(*artifact.split(":"), exclusions)
        for artifact in artifacts
    )
    (folder / "pom.xml").write_text(_POM.format(name=name, dependencies=dependencies))
    done = subprocess.run(
        ["mvn", "-q", "-B", "-U", "dependency:copy-dependencies", "-DoutputDirectory=."],
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        pytest.skip(f"{name} could not be had from Maven Central: {done.stdout[-300:]}")
    complete.write_text(wanted)
    return folder
