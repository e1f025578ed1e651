"""Checks of a folder or URL of Parquet files that need no connection."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from waylog.config import ConfigError
from waylog.folders import check_folder

_SCHEMES: Final = frozenset(("file", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "webhdfs"))


def check_storage_url(option: str, url: str, *, written: bool = False) -> None:
    """Raise ConfigError for what can never be opened.

    With `written` a local folder is created if needed, and must be one that can be written to.
    """
    if "://" not in url:
        scheme = url.partition(":/")[0]
        if ":/" in url and scheme in {*_SCHEMES, "hdfs"}:
            raise ConfigError(f"{option} {url}: a URL begins with {scheme}://")
        if written:
            check_folder(Path(url), option)
        return
    address = urlsplit(url)
    if address.scheme == "hdfs":
        raise ConfigError(
            f"{option} {url}: say webhdfs://HOST:9870/PATH, which Spark understands too"
        )
    if address.scheme not in _SCHEMES:
        raise ConfigError(
            f"{option} {url}: a folder, or a URL that begins with "
            f"{', '.join(sorted(f'{each}://' for each in _SCHEMES))}, is expected"
        )
    if address.scheme != "file" and not address.netloc:
        raise ConfigError(f"{option} {url}: the URL names no bucket or host")
