"""Shared settings and checks of all tests."""

import faulthandler
import gc
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from inspect import isfunction
from pathlib import Path
from typing import NoReturn, cast

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.certificates import Certificates
from tests.memory_folder import memory_folder
from waylog.process import stop_limit

# On a busy machine an example may take long for reasons that have nothing to do with the code.
# `make test` tries the same examples everywhere, so that a change is judged by what it changes;
# `make explore` tries new ones each time.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("same")


#: Files with tests that have the session of Spark of their process. Its JVM takes ten seconds of
#: processor time until it answers, so one process has all of them.
SPARK_SESSION = frozenset(
    f"tests/spark/{name}"
    for name in (
        "api/test_dataframes.py",
        "history/test_job.py",
        "history/test_outdated.py",
        "history/test_readers.py",
        "places/test_job.py",
        "runtime/test_session.py",
    )
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector, and leave them out of it afterwards.

    The modules and items stay until the end. Looking through them again and again would take a
    third of the collection's time, in each of the processes, and half a second in a test that calls
    the collector.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


REAL_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Have the files of many processes in memory, and say why a process of tests ends."""
    if config.getoption("numprocesses", None) and not os.environ.get("TMPDIR"):
        # Tests that run one after the other try the disk.
        folder = memory_folder()
        if folder is not None:
            _use_for_temporary_files(folder, config)
    _tell_why_the_process_ends(config)


def _use_for_temporary_files(folder: Path, config: pytest.Config) -> None:
    """Have temporary files in `folder`, also those of the processes that are started from here.

    Those of pytest are in a folder with its usual name, where what belongs to a failure stays. All
    others go at the end: a killed JVM leaves its own.
    """
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
    others = Path(tempfile.mkdtemp(prefix="tests-", dir=folder))
    others.chmod(0o1777)  # as /tmp: tests are several accounts of the machine
    os.environ["TMPDIR"] = tempfile.tempdir = str(others)
    config.add_cleanup(lambda: shutil.rmtree(others, ignore_errors=True))


def _tell_why_the_process_ends(config: pytest.Config) -> None:
    """Say why a test's process ends, should a thread of the product end it.

    `waylog.process.threads.end_process` leaves without a word of pytest's, which has caught the log
    line: of a process among several, one would see only that it has gone.
    """
    own = os.getpid()
    leave = os._exit
    # No output is caught yet.
    stderr = config.stash[REAL_STDERR] = os.dup(2)

    def say_and_leave(status: int) -> NoReturn:
        if os.getpid() == own:
            os.write(stderr, f"os._exit({status}) in a test's process:\n".encode())
            faulthandler.dump_traceback(stderr)
        leave(status)

    os._exit = say_and_leave
    config.add_cleanup(lambda: setattr(os, "_exit", leave))
    config.add_cleanup(lambda: os.close(stderr))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End this process, with the stacks of its threads, if a test hangs where no signal is served.

    That is so in C; pytest-timeout, which tells more, waits for Python.
    """
    with _hangs_end(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """The same for a teardown: pytest-timeout ends a test once, and not what hangs after that."""
    with _hangs_end(item):
        return (yield)


@contextmanager
def _hangs_end(item: pytest.Item) -> Iterator[None]:
    marker = item.get_closest_marker("timeout")
    limit_s = float(marker.args[0] if marker is not None else item.config.getini("timeout"))
    stderr = item.config.stash[REAL_STDERR]
    faulthandler.dump_traceback_later(limit_s + 100, file=stderr, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_unconfigure() -> None:
    """Let libraries find their objects at the end; some complain about those that are left."""
    gc.unfreeze()


class _FilesAndSession(LoadFileScheduling):  # type: ignore[misc]
    """Gives a process a file, or all those that share a session of Spark."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "a session of Spark" if file in SPARK_SESSION else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Return what gives the tests to the processes of `--dist loadfile`."""
    return _FilesAndSession(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let long files begin early, and refuse hooks in test modules and unknown sessions of Spark.

    Where several processes run the files, the last one would go on alone for a minute. Hooks in
    test modules pytest ignores without a warning.
    """
    items.sort(key=lambda item: item.get_closest_marker("early") is None)
    for item in items:
        file = item.nodeid.partition("::")[0]
        of_spark = file.startswith("tests/spark/") and file not in SPARK_SESSION
        if of_spark and "session" in getattr(item, "fixturenames", ()):
            raise pytest.UsageError(f"{file} has to be in SPARK_SESSION of tests/conftest.py")
    for module in {item.getparent(pytest.Module) for item in items}:
        names = vars(module.obj) if module is not None else {}
        for name, value in names.items():
            if name.startswith("pytest_") and isfunction(value):
                raise pytest.UsageError(f"{module}: {name} has to stand in a conftest")


@pytest.fixture(autouse=True)
def _same_umask_afterwards() -> Iterator[None]:
    """Restore the umask: a command that runs in this process makes it private for good."""
    umask = os.umask(0o077)
    os.umask(umask)
    yield
    os.umask(umask)


@pytest.fixture(autouse=True)
def _no_limit_of_a_stop_goes_on() -> Iterator[None]:
    """Refuse what would end this process a minute later, amid another test."""
    yield
    limits = [each for each in threading.enumerate() if each.name == stop_limit.THREAD_NAME]
    for each in limits:
        cast(threading.Timer, each).cancel()
    assert not limits, "a process that serves was stopped here, with a limit for its stop"


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, and a broker's certificate of it for 127.0.0.1 and localhost."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a supervisor, for processes that find its name in NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        yield listening
