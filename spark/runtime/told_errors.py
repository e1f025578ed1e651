"""What storage, files and Spark may raise, as the error of a command: one line, status 1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark.runtime.reasons import is_of_spark, reason_of
from waylog.cli import CommandError


@contextmanager
def told_errors(place: str, written: str | None = None) -> Iterator[None]:
    """Raise CommandError for what is no mistake in this program.

    `place` is what is read, and what is written unless `written` is.

    An OSError that names a file or URL is left to the command line, which tells it as it is.
    """
    try:
        yield
    except Exception as error:
        from waylog.history.history_reader import HistoryUnreadable
        from waylog.history.storage_errors import shown_url, unavailable
        from waylog.process.storage_trouble import is_disk_full

        named = isinstance(error, OSError) and error.filename is not None
        if named or isinstance(error, CommandError | BrokenPipeError) or not is_expected(error):
            raise
        if isinstance(error, HistoryUnreadable):
            raise CommandError(str(error)) from error
        if is_disk_full(error):
            raise CommandError(str(unavailable(written or place, error))) from error
        raise CommandError(f"{shown_url(place)}: {reason_of(error)}") from error


def is_expected(error: BaseException) -> bool:
    """Tell whether an error may come without a mistake in this program."""
    # Not at the start: commands are also loaded to check their words.
    from waylog.history.history_reader import HistoryUnreadable

    from_arrow = any(each.__module__ == "pyarrow.lib" for each in type(error).__mro__)
    return isinstance(error, OSError | HistoryUnreadable) or from_arrow or is_of_spark(error)
