"""The import of extracts into one index file, as run by `waylog geo import`."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from geoservice.importer.builder import Builder, Built
from geoservice.importer.countries import Countries
from geoservice.importer.reading import Report, read_extracts
from geoservice.importer.row_attributes import survey_rows
from geoservice.reverse.geocoder import Geocoder

# Share of an import's duration, for the progress bar.
_READ_PART: Final = 0.6


class ImportFailed(Exception):
    """The index could not be built; the message says why. An existing index is unchanged."""


def build_index(
    paths: Sequence[Path],
    output: Path,
    report: Report = lambda _text, _part: None,
    world: Path | None = None,
) -> Built:
    """Build an index of one or many extracts and replace `output` by it atomically.

    Raises SourceError for an extract that cannot be read, and ImportFailed if another import to the
    same file is running.
    """
    with work_directory(output) as directory:
        source = read_extracts(
            list(paths), directory, lambda text, part: report(text, part * _READ_PART)
        )
        try:
            source.rows.release()
            report("ranking areas", _READ_PART)
            countries = Countries(source, Geocoder.open(world))
            builder = Builder(survey_rows(source, countries), countries, directory)
            del countries
            try:
                builder.run(lambda text, part: report(text, _READ_PART + part * (1 - _READ_PART)))
                return builder.write(output, paths)
            finally:
                builder.close()
        finally:
            source.rows.close()


@contextmanager
def work_directory(output: Path) -> Iterator[Path]:
    """Create a directory beside the output for temporary files; remove those of a killed import."""
    directory = output.with_name(f"{output.name}.import")
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ImportFailed(f"{output}: another import is writing this index") from None
        for leftover in directory.iterdir():
            if leftover.name != "lock":
                leftover.unlink()
        for leftover in output.parent.glob(f"{output.name}.*.new"):
            leftover.unlink()
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
