"""Index files with damage anywhere give a clear error, never a wrong address and never a crash."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geoservice.index.format import read_header, write_index
from geoservice.index.store import IndexUnavailable
from geoservice.reverse.geocoder import Geocoder, ReverseResult
from tests.geoservice.index_files import read_sections

_RANDOM = random.Random(11)
#: Towns, borders, coasts, open sea, both poles, the date line, random points, and the small
#: extract.
POINTS = [
    (47.141, 9.5209), (47.66, 9.175), (48.2082, 16.3738), (0.0, -30.0), (90.0, 0.0), (-90.0, 12.0),
    (-17.0, 180.0), (-17.0, -180.0), (65.8, -168.98), (51.44, 4.93),
    *((_RANDOM.uniform(-90, 90), _RANDOM.uniform(-180, 180)) for _ in range(100)),
    *((_RANDOM.uniform(47.09, 47.12), _RANDOM.uniform(9.49, 9.52)) for _ in range(100)),
]  # fmt: skip
EXTREMES = (-(2**31), 2**31 - 1, -1, 0, 1, -2, -3, 2**30)


def answers(path: Path) -> list[ReverseResult]:
    geocoder = Geocoder.open(path)
    lats, lons = zip(*POINTS, strict=True)
    return geocoder.reverse_batch(lats, lons)


@pytest.fixture(scope="module", params=["world", "streets"])
def whole(request: pytest.FixtureRequest, world_path: Path, street_path: Path) -> Path:
    """Return an index of either kind."""
    return world_path if request.param == "world" else street_path


@pytest.fixture(scope="module")
def intact(whole: Path) -> list[ReverseResult]:
    return answers(whole)


@pytest.fixture(scope="module")
def copy(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("damage") / "copy.bin"
    path.write_bytes(whole.read_bytes())
    return path


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


def places(path: Path) -> Iterator[tuple[str, int]]:
    """Yield offsets in every region: ends and middle of each section, header, table, padding."""
    data = path.read_bytes()
    sections = read_header(memoryview(data)).sections
    covered = 48 + 40 * len(sections)
    yield from (("header", offset) for offset in range(0, 48))
    yield from (("table", offset) for offset in range(48, covered, 7))
    for name, section in sorted(sections.items(), key=lambda item: item[1].offset):
        if section.offset > covered:
            yield f"filling before {name}", section.offset - 1
        for share in (0.0, 0.5, 1.0) if section.length else ():
            yield name, section.offset + int(share * (section.length - 1))
        covered = section.offset + section.length
    if covered < len(data):
        yield "filling at the end", len(data) - 1


def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(
    copy: Path, intact: list[ReverseResult]
) -> None:
    harmless = set()
    for region, offset in places(copy):
        flip(copy, offset)
        try:
            assert answers(copy) == intact, region
            harmless.add(region)
        except IndexUnavailable as error:
            message = str(error)
            assert str(copy) in message
            assert any(word in message for word in ("damaged", "not a geo", "build the index"))
            assert "\n" not in message
        finally:
            flip(copy, offset)
    # Only four bytes of the header and the padding between sections have no meaning.
    assert harmless <= {"header"} | {name for name, _ in places(copy) if "filling" in name}


def test_a_file_cut_anywhere_is_refused(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.bin"
    path.write_bytes(whole.read_bytes())
    size = path.stat().st_size
    lengths = {int(size * share / 40) for share in range(40)} | {1, 8, 47, 48, 49, 100, 700}
    for length in sorted(lengths | {size - 1}, reverse=True):
        with path.open("r+b") as file:
            file.truncate(length)
        with pytest.raises(IndexUnavailable, match=r"cut\.bin: "):
            Geocoder.open(path)


def test_a_file_with_something_behind_its_end_is_refused(copy: Path, tmp_path: Path) -> None:
    path = tmp_path / "longer.bin"
    path.write_bytes(copy.read_bytes() + b"\0")
    with pytest.raises(IndexUnavailable, match="damaged"):
        Geocoder.open(path)


class Sections(dict[str, bytes]):
    """The sections of an index, which a failure report shows by their names only."""

    def __repr__(self) -> str:
        return f"Sections({', '.join(self)})"


@pytest.fixture(scope="module")
def sections(whole: Path) -> Sections:
    return Sections(read_sections(whole))


numbers = st.one_of(
    st.sampled_from(EXTREMES),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-10_000, 300_000),
)
#: Positions in a section, as shares of its length, and the numbers to write there.
changes = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), numbers), min_size=1, max_size=12)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_file_of_lies_with_right_checksums_does_no_harm(
    sections: Sections, tmp_path: Path, data: st.DataObject
) -> None:
    """A forged index can give any answer, but no lookup reads outside of the file."""
    name = data.draw(st.sampled_from(sorted(sections)))
    content = bytearray(sections[name])
    for share, number in data.draw(changes):
        offset = int(share * (len(content) // 4)) * 4
        content[offset : offset + 4] = number.to_bytes(4, "little", signed=True)
    if data.draw(st.booleans()):
        del content[int(data.draw(st.floats(0, 1)) * len(content)) :]
    path = tmp_path / "lies.bin"
    write_index(path, {**sections, name: bytes(content)})
    try:
        results = answers(path)
    except IndexUnavailable:
        return
    except (msgspec.DecodeError, UnicodeDecodeError):
        # The texts of addresses are JSON already, and too many to be validated at open.
        assert name in ("tails", "tail texts")
        return
    for result in results:
        assert isinstance(result.display_name, str)
        assert result.distance is None or result.distance >= 0
