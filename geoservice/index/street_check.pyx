# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Check that no number in a street index points outside of it.

A checksum shows that a file is as it was written. This check shows that a search never follows a
number out of the file and always ends, whatever the file holds. It is one pass over all sections
when an index is opened.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t

from geoservice.index import street_format as sections

cdef enum:
    OBJECT_WIDTH = 12
    SHAPE_WIDTH = 8
    AREA_WIDTH = 8
    TAIL_WIDTH = 5
    CELL_WIDTH = 4  # int64 key, int32 first, int32 end
    KIND_WIDTH = 3


def check_streets(by_name):
    """Raise ValueError, saying what is wrong, if a search could leave the sections.

    `by_name` maps the sections of street_format and the strings to memoryviews of bytes.
    """
    cdef int64_t objects, shapes, vertices, names, strings, tails, areas, bands
    cdef const int32_t[::1] values

    def table(name, width=1):
        section = by_name[name]
        if len(section) % (4 * width):
            raise ValueError(f"section {name!r} ends within an entry")
        return section.cast("B").cast("i")

    string_ends = table("string ends")
    strings = len(string_ends)
    check_ends("string ends", string_ends, 0, 1, 0, len(by_name["strings"]))
    if strings and string_ends[strings - 1] != len(by_name["strings"]):
        raise ValueError("section 'string ends' does not fit the strings")

    object_table = table(sections.OBJECTS, OBJECT_WIDTH)
    objects = len(object_table) // OBJECT_WIDTH
    name_ends = table(sections.NAME_ENDS)
    names = len(name_ends)
    tail_table = table(sections.TAILS, TAIL_WIDTH)
    tails = len(tail_table) // TAIL_WIDTH - 1
    kinds = table(sections.KINDS, KIND_WIDTH)
    if tails < 0:
        raise ValueError("section 'tails' is empty")
    check_column(sections.OBJECTS, object_table, 2, OBJECT_WIDTH, 0, len(kinds) // KIND_WIDTH)
    check_column(sections.OBJECTS, object_table, 3, OBJECT_WIDTH, -1, names)
    check_column(sections.OBJECTS, object_table, 4, OBJECT_WIDTH, -1, objects)
    check_column(sections.OBJECTS, object_table, 5, OBJECT_WIDTH, -1, strings)
    check_column(sections.OBJECTS, object_table, 6, OBJECT_WIDTH, -1, strings)
    check_column(sections.OBJECTS, object_table, 7, OBJECT_WIDTH, 0, tails)
    check_column(sections.OBJECTS, object_table, 11, OBJECT_WIDTH, -1, strings)
    check_column(sections.KINDS, kinds, 0, 1, 0, strings)
    if len(table(sections.BOXES, 4)) != 4 * objects:
        raise ValueError("section 'boxes' does not fit the objects")
    order = table(sections.OBJECT_ORDER)
    if len(order) != objects:
        raise ValueError("section 'object order' does not fit the objects")
    check_column(sections.OBJECT_ORDER, order, 0, 1, 0, objects)

    check_names(by_name, table, name_ends, objects, strings)
    check_tails(by_name, table, tail_table, tails, objects, names, strings)

    shape_table = table(sections.SHAPES, SHAPE_WIDTH)
    shapes = len(shape_table) // SHAPE_WIDTH - 1
    if shapes < 0 or shape_table[SHAPE_WIDTH * shapes] != -1:
        raise ValueError("section 'shapes' has no end")
    vertices = len(table(sections.VERTICES, 2)) // 2
    values = shape_table[: SHAPE_WIDTH * shapes]
    check_column(sections.SHAPES, values, 0, SHAPE_WIDTH, 0, objects)
    check_column(sections.SHAPES, values, 1, SHAPE_WIDTH, -1, tails)
    check_ends(sections.SHAPES, shape_table, 2, SHAPE_WIDTH, 0, vertices)
    check_cells(sections.CELLS, table(sections.CELLS, CELL_WIDTH), len(table(sections.ENTRIES)))
    check_column(sections.ENTRIES, table(sections.ENTRIES), 0, 1, 0, shapes)
    for ends, members in (
        (sections.HOUSE_ENDS, sections.HOUSES), (sections.INSIDE_ENDS, sections.INSIDE),
    ):
        if len(table(ends)) != objects:
            raise ValueError(f"section {ends!r} does not fit the objects")
        check_ends(ends, table(ends), 0, 1, 0, len(table(members)))
        check_column(members, table(members), 0, 1, 0, shapes)
    interpolations = table(sections.INTERPOLATIONS, 4)
    check_column(sections.INTERPOLATIONS, interpolations, 0, 4, 0, objects)
    for column in (1, 2, 3):
        # The kernel subtracts house numbers in 32 bits and divides by the step.
        check_column(sections.INTERPOLATIONS, interpolations, column, 4, column == 3, 1 << 30)

    area_table = table(sections.AREAS, AREA_WIDTH)
    areas = len(area_table) // AREA_WIDTH - 1
    if areas < 0:
        raise ValueError("section 'areas' has no end")
    values = area_table[: AREA_WIDTH * areas]
    band_ends = table(sections.BANDS)
    bands = len(band_ends)
    check_column(sections.AREAS, values, 0, AREA_WIDTH, 0, objects)
    check_ends(sections.AREAS, area_table, 2, AREA_WIDTH, 1, bands)
    check_column(sections.AREAS, values, 7, AREA_WIDTH, 1, 1 << 31)  # the height of a band
    check_ends(sections.BANDS, band_ends, 0, 1, 0, len(table(sections.EDGES, 4)) // 4)
    check_cells(
        sections.AREA_CELLS, table(sections.AREA_CELLS, CELL_WIDTH),
        len(table(sections.AREA_ENTRIES)),
    )
    # Entries below zero are place nodes.
    check_column(sections.AREA_ENTRIES, table(sections.AREA_ENTRIES), 0, 1, -objects, areas)


def check_names(by_name, table, name_ends, int64_t objects, int64_t strings):
    """Check the sets of names."""
    cdef int64_t names = len(name_ends)
    pairs = table(sections.NAMES, 2)
    check_ends(sections.NAME_ENDS, name_ends, 0, 1, 0, len(pairs) // 2)
    check_column(sections.NAMES, pairs, 0, 1, 0, strings)
    extras = table(sections.EXTRAS, 2)
    check_column(sections.EXTRAS, extras, 0, 2, 0, objects)
    check_column(sections.EXTRAS, extras, 1, 2, -1, names)
    countries = table(sections.COUNTRIES, 2)
    check_column(sections.COUNTRIES, countries, 0, 2, 0, strings)
    check_column(sections.COUNTRIES, countries, 1, 2, -1, names)


def check_tails(
    by_name, table, const int32_t[::1] rows, int64_t tails, int64_t objects, int64_t names,
    int64_t strings,
):
    """Check the addresses. The last row marks the end of the row before it."""
    cdef int64_t i
    cdef int64_t texts = len(by_name[sections.TAIL_TEXTS])
    lines = table(sections.TAIL_LINES)
    check_ends(sections.TAILS, rows, 0, TAIL_WIDTH, 0, len(lines))
    check_column(sections.TAIL_LINES, lines, 0, 1, 0, objects)
    check_column(sections.TAILS, rows, 1, TAIL_WIDTH, -1, strings)
    check_column(sections.TAILS, rows, 2, TAIL_WIDTH, -1, len(table(sections.COUNTRIES, 2)) // 2)
    check_ends(sections.TAILS, rows, 3, TAIL_WIDTH, 0, texts)
    for i in range(tails):
        if not rows[TAIL_WIDTH * i + 3] <= rows[TAIL_WIDTH * i + 4] <= rows[TAIL_WIDTH * i + 8]:
            raise ValueError("section 'tails' has a text that ends before it begins")


cdef int check_column(
    str name, const int32_t[::1] values, int64_t first, int64_t width, int64_t low, int64_t end
) except -1:
    """Check that every `width`th number from `first` on is at least `low` and less than `end`."""
    cdef int64_t i, count = values.shape[0]
    # One unsigned comparison covers both bounds without a branch, so the compiler can vectorise it.
    cdef uint32_t lowest = <uint32_t><int32_t>low, range_size = <uint32_t>(end - low), bad = 0
    if count and end <= low:
        raise ValueError(f"section {name!r} points into nothing")
    if width == 1:
        for i in range(first, count):
            bad |= <uint32_t>values[i] - lowest >= range_size
    else:
        for i in range(first, count, width):
            bad |= <uint32_t>values[i] - lowest >= range_size
    if bad:
        raise ValueError(f"section {name!r} has numbers that point nowhere")
    return 0


cdef int check_ends(
    str name, const int32_t[::1] values, int64_t first, int64_t width, int64_t least, int64_t end
) except -1:
    """Check that every `width`th number exceeds the last one by `least`, and none exceeds `end`."""
    cdef int64_t i, before, bad, count = values.shape[0]
    if count == 0:
        return 0
    before = values[first]
    bad = before < 0
    for i in range(first + width, count, width):
        bad |= values[i] < before + least
        before = values[i]
    if bad or before > end:
        raise ValueError(f"section {name!r} has ends that are out of order")
    return 0


cdef int check_cells(str name, const int32_t[::1] values, int64_t entries) except -1:
    """Check the cells of a hash table, whose number must be a power of two."""
    cdef int64_t i, bad = 0, count = values.shape[0] // CELL_WIDTH
    if count < 1 or count & (count - 1):
        raise ValueError(f"section {name!r} is no hash table")
    for i in range(0, values.shape[0], CELL_WIDTH):
        # Empty cells have the key -1.
        if values[i] != -1 or values[i + 1] != -1:
            bad += not 0 <= values[i + 2] <= values[i + 3] <= entries
    if bad:
        raise ValueError(f"section {name!r} has {bad} cells that point nowhere")
    return 0
