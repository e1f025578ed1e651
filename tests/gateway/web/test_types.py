"""The page's JavaScript and its JSDoc types agree: TypeScript's compiler finds nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.web import vendor

PAGE = Path(vendor.__file__).parent
#: Kept between runs; `make clean` removes it.
TOOLS = Path(__file__).parents[3] / "build" / "typescript"
PACKAGES = {
    "typescript": "5.9.3",
    "maplibre-gl": vendor.MAPLIBRE.version,
    "@types/geojson": "7946.0.16",
}


@pytest.fixture(scope="module")
def tools() -> Path:
    """Install the compiler and the types of the map library, once."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("the types of the page are not checked; install: apt-get install npm")
    wanted = json.dumps({"private": True, "dependencies": PACKAGES})
    done = TOOLS / "installed.json"
    if not done.is_file() or done.read_text() != wanted:
        TOOLS.mkdir(parents=True, exist_ok=True)
        (TOOLS / "package.json").write_text(wanted)
        found = subprocess.run(
            ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"],
            cwd=TOOLS,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if found.returncode:
            pytest.skip(f"npm cannot fetch the compiler: {found.stderr.strip()[-300:]}")
        done.write_text(wanted)
    return TOOLS


def compiled(tools: Path, path: Path) -> str:
    """Return what the compiler says of a file or a folder, and of what they import."""
    configuration = tools / "tsconfig.json"
    modules = tools / "node_modules"
    configuration.write_text(
        json.dumps(
            {
                "extends": str(PAGE / "tsconfig.json"),
                "compilerOptions": {
                    "typeRoots": [str(modules / "@types")],
                    "paths": {"maplibre-gl": [str(modules / "maplibre-gl")]},
                },
                "include": [str(path)],
            }
        )
    )
    found = subprocess.run(
        ["node", str(modules / "typescript/bin/tsc"), "--project", str(configuration)],
        cwd=tools,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return found.stdout + found.stderr


def test_the_types_of_the_page_agree(tools: Path) -> None:
    assert compiled(tools, PAGE / "js") == ""


def test_a_wrong_type_or_an_unknown_text_is_found(tools: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.js"
    wrong.write_text(
        f'import {{ duration }} from "{PAGE}/js/format.js";\n'
        f'import {{ t }} from "{PAGE}/js/i18n.js";\n'
        'duration("an hour");\n'
        't("no.such.text");\n'
    )
    said = compiled(tools, wrong)
    assert "wrong.js(3,10)" in said and "wrong.js(4,3)" in said
