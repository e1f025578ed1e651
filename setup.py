"""Compiles the Cython extensions; their list, and the rest of the build, is in pyproject.toml."""

import os
import tomllib
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

PYPROJECT = tomllib.loads(Path(__file__).with_name("pyproject.toml").read_text())
EXTENSIONS = PYPROJECT["tool"]["waylog"]["extensions"]

# Built by the set-up, not kept in git: without them a platform does not start, or has no map.
WORLD = ["geoservice/world/world.bin", "gateway/web/vendor", "gateway/web/world"]


class CompleteWheel(bdist_wheel):
    """A command that refuses to make a wheel from which no platform could be started."""

    def run(self) -> None:
        """Make the wheel; raises SystemExit that names what is missing."""
        missing = [path for path in WORLD if not Path(path).exists()]
        if missing:
            raise SystemExit(f"missing: {', '.join(missing)}; `make setup` builds them first")
        if not self.distribution.has_ext_modules():
            raise SystemExit("WAYLOG_SKIP_EXTENSIONS is for `pip install -e`, not for wheels")
        super().run()


# The set-up installs the packages first and compiles afterwards, so that a change to one .pyx does
# not reinstall everything.
setup(
    cmdclass={"bdist_wheel": CompleteWheel},
    ext_modules=[]
    if os.environ.get("WAYLOG_SKIP_EXTENSIONS")
    else cythonize(
        [
            Extension(
                path.removesuffix(".pyx").replace("/", "."),
                [path],
                extra_compile_args=["-O3", "-g0"],
            )
            for path in EXTENSIONS
        ],
        build_dir="build/cython",
        compiler_directives={"language_level": 3},
    ),
)
