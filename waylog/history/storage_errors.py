"""Errors of a storage in words for people: which folder or URL, what it said, what to do."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from waylog.process.storage_trouble import is_disk_full

_TEXT_MAX: Final = 300
#: What Arrow says of S3 before and after what matters.
_BEFORE: Final = re.compile(r"^When .*?: (?=AWS Error )")
_DETAILS: Final = re.compile(r"; Details: (Failed to connect to \S+)")
#: How Arrow names a file of this machine.
_LOCAL_FILE: Final = re.compile(r"(?:local file|file or directory|directory|file) '(/[^']+)'")
#: What a server or the network has said, and what helps. The first that fits counts.
_ADVICE: Final = (
    (
        r"refused|no connection|NETWORK_CONNECTION|couldn't connect|unreachable|timed? ?out|"
        r"reset|resolve|name or service|not known|curlCode: (6|7|28)\b",
        "is it running, and is the address right?",
    ),
    (
        r"ACCESS_DENIED|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|SIGNATURE|UNRECOGNIZED_CLIENT|"
        r"credentials|HTTP status 403|\b40[13]\b|AccessControlException",
        "has the account that the environment names the right to do this?",
    ),
    (r"NO_SUCH_BUCKET|bucket .*(not found|does not exist)", "create the bucket first"),
)
#: Errors of a folder of this machine that stay until somebody changes the folder or its name.
_LASTING: Final = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EEXIST,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EROFS,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EINVAL,
    }
)


class StorageUnavailable(OSError):
    """A folder or URL that cannot be used now; its text names it and says why."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def shown_url(url: str) -> str:
    """Return a folder or URL without the secrets that it may contain."""
    if "://" not in url:
        return url
    address = urlsplit(url)
    return address._replace(netloc=address.netloc.rpartition("@")[2], query="").geturl()


def unavailable(url: str, error: OSError) -> StorageUnavailable:
    """Return the error of a storage at a URL, or of the local folder of that name, for people."""
    if isinstance(error, StorageUnavailable):
        return error
    number = error.errno or errno.EIO
    if "://" in url:
        return StorageUnavailable(number, _said(str(error)), shown_url(url))
    if is_disk_full(error):
        reason = "no room left; make room, or name another folder"
    else:
        reason = os.strerror(error.errno) if error.errno else _first_line(str(error))
    named = None if is_disk_full(error) else _LOCAL_FILE.search(str(error))
    return StorageUnavailable(number, reason, named[1] if named else url)


def is_lasting(error: OSError) -> bool:
    """Tell whether a local folder cannot be used until somebody changes something."""
    return error.errno in _LASTING


def _said(text: str) -> str:
    text = _BEFORE.sub("", _first_line(text))
    details = _DETAILS.search(text)
    if details is not None:
        text = details[1].replace("Failed to connect", "no connection")
    for pattern, advice in _ADVICE:
        if re.search(pattern, text, re.IGNORECASE):
            return f"{text}; {advice}"
    return text


def _first_line(text: str) -> str:
    with suppress(IndexError):
        return text.strip().splitlines()[0].rstrip(" .")[:_TEXT_MAX]
    return "it did not say why"
