"""The folder of the Unix sockets by which Spark and its Python processes reach each other."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Final

#: Characters that Spark allows the folder (`spark.python.unix.domain.socket.dir`): a socket's path
#: has 104 on some systems, and its name takes 43.
FOLDER_CHARACTERS_MAX: Final = 61
_PREFIX: Final = "waylog-spark-"
#: Those that `mkdtemp` adds to its prefix, and the slash.
_RANDOM: Final = 9


def socket_folder() -> Path:
    """Create a folder for this process's account only, which is removed when the process ends."""
    base = tempfile.gettempdir()
    if len(base) + len(_PREFIX) + _RANDOM > FOLDER_CHARACTERS_MAX:
        base = "/tmp"  # noqa: S108
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
