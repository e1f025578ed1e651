"""The page's files are served under one version, which changes with any of them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gateway.http.listener import build_application
from gateway.http.requests.services import Services
from gateway.web.shell import ShellFolder
from gateway.web.tile_server import tile_server
from tests.gateway.parts import parts

FILES = {
    "index.html": '<html lang="en"><script src="/static/js/app.js"></script>'
    '<link href="/static/manifest/en.webmanifest">',
    "share.html": '<html lang="en"><script src="/static/js/app.js"></script>',
    "docs.html": '<html lang="en"><script src="/static/vendor/swagger-ui-bundle.js"></script>',
    "js/app.js": "import './api.js';",
    "js/api.js": "export {};",
    "js/types/api.d.ts": "export {};",
    "js/offline/service_worker.js": "// works",
    "css/theme.css": "p { color: red; }",
    "locales/en.json": "{}",
    "vendor/maplibre-gl.js": "var maplibregl;",
    "manifest/en.webmanifest": "{}",
}

Client = TestClient[web.Request, web.Application]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "web"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def changed(path: Path, text: str) -> None:
    """Write a file at a later time than before, however coarse the clock of files is."""
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith(("manif", "js/t"))])
def test_every_file_is_part_of_the_version(folder: Path, name: str) -> None:
    shell = ShellFolder(folder)
    before = shell.current()
    assert shell.current() is before
    changed(folder / name, FILES[name] + "\n")
    assert shell.current().version != before.version
    changed(folder / name, FILES[name])
    assert shell.current().version == before.version  # content counts, not the day of a file
    assert ShellFolder(folder).current() == shell.current()


def test_a_file_that_is_added_is_part_of_the_version(folder: Path) -> None:
    shell = ShellFolder(folder)
    before = shell.current().version
    (folder / "js" / "new.js").write_text("")
    assert shell.current().version != before


def test_documents_name_the_version_of_what_they_load(folder: Path) -> None:
    shell = ShellFolder(folder).current()
    index = shell.documents["index.html"].decode()
    assert f'src="/static/{shell.version}/js/app.js"' in index
    assert f'data-shell="{shell.version}"' in index
    assert 'href="/static/manifest/en.webmanifest"' in index  # an installed page finds it again
    assert f"/static/{shell.version}/js/app.js" in shell.documents["share.html"].decode()
    assert '"/static/vendor/swagger-ui-bundle.js"' in shell.documents["docs.html"].decode()


def test_the_worker_begins_with_what_it_keeps(folder: Path) -> None:
    shell = ShellFolder(folder).current()
    first, _, rest = shell.worker.decode().partition("\n")
    assert rest == FILES["js/offline/service_worker.js"]
    said = re.fullmatch(r"const SHELL = (.*);", first)
    assert said is not None
    listed = json.loads(said[1])
    assert listed["version"] == shell.version
    under = f"/static/{shell.version}/"
    names = {path.removeprefix(under) for path in listed["files"]}
    assert names == {
        *("/", "js/app.js", "js/api.js", "css/theme.css", "locales/en.json"),
        "vendor/maplibre-gl.js",
    }
    script = hashlib.sha256(FILES["js/app.js"].encode()).hexdigest()
    assert listed["files"][f"{under}js/app.js"] == script
    index = hashlib.sha256(shell.documents["index.html"]).hexdigest()
    assert listed["files"]["/"] == index


def test_a_path_of_another_version_or_of_a_changed_file_leads_nowhere(folder: Path) -> None:
    shell = ShellFolder(folder)
    version = shell.current().version
    assert shell.unversioned("js/app.js") is None
    assert shell.unversioned(f"{version}/js/app.js") == "js/app.js"
    for path in (
        "v-0123456789abcdef/js/app.js",
        f"{version}/js/none.js",
        f"{version}/manifest/en.webmanifest",
        f"{version}/../shell.py",
    ):
        with pytest.raises(LookupError):
            shell.unversioned(path)
    changed(folder / "js" / "app.js", "// new")
    with pytest.raises(LookupError):
        shell.unversioned(f"{version}/js/app.js")
    assert shell.unversioned(f"{version}/js/api.js") == "js/api.js"
    (folder / "js" / "api.js").unlink()
    with pytest.raises(LookupError):
        shell.unversioned(f"{version}/js/api.js")


@pytest_asyncio.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    async with parts(tmp_path) as made:
        yield made


async def test_versioned_files_may_be_kept_for_ever_and_others_not(services: Services) -> None:
    async with TestClient(TestServer(build_application(services, "test"))) as client:
        page = await client.get("/")
        found = re.search(r'src="(/static/v-[0-9a-f]{16}/js/app\.js)"', await page.text())
        assert found is not None
        assert page.headers["Cache-Control"] == "no-cache"
        script = await client.get(found[1])
        assert script.status == 200
        assert script.content_type == "text/javascript"
        assert "immutable" in script.headers["Cache-Control"]
        assert (await client.get("/static/js/app.js")).headers["Cache-Control"] == "no-cache"
        other = await client.get("/static/v-0123456789abcdef/js/app.js")
        assert other.status == 404
        assert "load the page again" in (await other.json())["error"]
        worker = await client.get("/service-worker.js")
        assert worker.content_type == "text/javascript"
        assert worker.headers["Cache-Control"] == "no-cache"
        assert "default-src 'self'" in worker.headers["Content-Security-Policy"]
        wrong = {"Host": "evil.example"}
        assert (await client.get("/service-worker.js", headers=wrong)).status == 421
        manifest = await client.get("/static/manifest/de.webmanifest")
        assert manifest.content_type == "application/manifest+json"


async def test_the_policy_of_the_page_alone_names_the_tile_servers(services: Services) -> None:
    services.tile_servers = (
        tile_server("map", "https://tiles.example.org:8443/{z}/{x}/{y}.png?key=k", "Me"),
        tile_server("satellite", "http://pictures.example/{z}/{y}/{x}.jpg"),
    )
    async with TestClient(TestServer(build_application(services, "test"))) as client:
        page = await client.get("/")
        assert page.headers["Referrer-Policy"] == "no-referrer"
        policy = page.headers["Content-Security-Policy"]
        directives = dict(each.strip().split(" ", 1) for each in policy.split(";"))
        wanted = "http://pictures.example https://tiles.example.org:8443"
        assert directives["connect-src"] == f"'self' {wanted}"
        assert directives["img-src"] == f"'self' data: blob: {wanted}"
        assert directives["default-src"] == directives["style-src"] == "'self'"
        for path in ("/share", "/static/js/app.js", "/service-worker.js"):
            answer = await client.get(path)
            assert "example" not in answer.headers["Content-Security-Policy"]
        offered = await (await client.get("/v1/base-maps")).json()
        assert [(each["name"], each["kind"], each["attribution"]) for each in offered] == [
            ("map", "raster", "Me"),
            ("satellite", "raster", "pictures.example"),
        ]
