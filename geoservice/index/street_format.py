"""The sections of a street index, besides `meta` and the strings; int32 unless stated otherwise.

Objects are named in answers: streets, houses, points of interest, areas. Shapes are the geometries
that are searched: a piece of a street with one address, a house, an outline. The part of an address
after house number and street is called its tail. All houses of a street share one tail.
"""

from __future__ import annotations

from typing import Final

OBJECTS: Final = "objects"  # OBJECT_COLUMNS of each object
BOXES: Final = "boxes"  # west, south, east, north of each object, in 1e-7 degrees
SHAPES: Final = "shapes"  # SHAPE_COLUMNS of each shape, and an end row
VERTICES: Final = "street vertices"  # lon, lat, in 1e-7 degrees; RING_END between rings
CELLS: Final = "street cells"  # hash table: int64 key, int32 first entry, int32 end of entries
ENTRIES: Final = "street entries"  # shapes in each cell
HOUSE_ENDS: Final = "house ends"  # for each object: end of its houses
HOUSES: Final = "houses"  # shapes of objects with a house number, by street
INSIDE_ENDS: Final = "inside ends"  # for each object: end of the points inside it
INSIDE: Final = "inside"  # shapes of points that lie in an outline
TAILS: Final = "tails"  # TAIL_COLUMNS of each tail, and an end row
TAIL_LINES: Final = "tail lines"  # objects (areas), from small to large
TAIL_TEXTS: Final = "tail texts"  # JSON members and display names, UTF-8
KINDS: Final = "kinds"  # category, type (strings), label in an address (string)
NAME_ENDS: Final = "name ends"  # for each set of names: end of its pairs
NAMES: Final = "names"  # pairs of strings: key, name
EXTRAS: Final = "extras"  # pairs: object, set of names; sorted by object
INTERPOLATIONS: Final = "interpolations"  # INTERPOLATION_COLUMNS
AREAS: Final = "areas"  # AREA_COLUMNS of each area polygon, and an end row
BANDS: Final = "area bands"  # for each band of each area: end of its edges
EDGES: Final = "area edges"  # x1, y1, x2, y2
AREA_CELLS: Final = "area cells"  # like CELLS, with larger cells
AREA_ENTRIES: Final = "area entries"  # areas and place nodes in each cell
COUNTRIES: Final = "street countries"  # country code, set of names

OBJECT_ORDER: Final = "object order"  # objects sorted by OSM number and type

#: The sections that the kernel searches.
KERNEL_SECTIONS: Final = (
    *(OBJECTS, BOXES, SHAPES, VERTICES, CELLS, ENTRIES, HOUSE_ENDS, HOUSES, INSIDE_ENDS, INSIDE),
    *(TAILS, TAIL_TEXTS, KINDS, INTERPOLATIONS, AREAS, BANDS, EDGES, AREA_CELLS, AREA_ENTRIES),
    *("string ends", "strings"),
)

#: The sections of every street index, besides `meta` and the sections of the search by name.
SECTIONS: Final = (
    *KERNEL_SECTIONS,
    *(TAIL_LINES, NAME_ENDS, NAMES, EXTRAS, COUNTRIES, OBJECT_ORDER),
)

OBJECT_COLUMNS: Final = (
    "osm_low",  # OSM number times 4 plus type (0 node, 1 way, 2 relation): its lower 32 bits
    "osm_high",
    "kind",
    "names",  # set of names or -1
    "parent",  # object or -1
    "number",  # string of the house number or -1
    "unlisted",  # string of addr:place if no area of the address has this name, or -1
    "tail",
    "lon",
    "lat",
    "ranks",  # search, address << 8, flags << 16
    "text",  # string shown as name, or -1
)

#: Flags of an object.
FLAG_NODE: Final = 1
FLAG_NUMBER_COUNTS: Final = 2  # Nominatim counts the object as a house with this number
FLAG_IN_TAIL: Final = 4  # the object's own name is part of its tail
FLAG_LINKED: Final = 8  # place node that is represented by a boundary

SHAPE_COLUMNS: Final = (
    "object",
    "tail",
    "first_vertex",
    "layers",
    "west",
    "south",
    "east",
    "north",
)

# Bits of a shape's layers, and of its type of geometry.
LAYER_STREET: Final = 1  # rank 26
LAYER_PATH: Final = 2  # rank 27
LAYER_HOUSE: Final = 4
LAYER_POI: Final = 8
LAYER_RAILWAY: Final = 16
LAYER_NATURAL: Final = 32
LAYER_MANMADE: Final = 64
LAYER_INTERPOLATION: Final = 128
SHAPE_LINE: Final = 256
SHAPE_AREA: Final = 512

TAIL_COLUMNS: Final = (
    "first_line",
    "postcode",  # string or -1
    "country",  # number or -1
    "first_text",  # first byte of the JSON members; the next tail ends the display name
    "display",  # first byte of the display name
)

INTERPOLATION_COLUMNS: Final = ("object", "first", "last", "step")

AREA_COLUMNS: Final = (
    "object",
    "ranks",
    "first_band",
    "west",
    "south",
    "east",
    "north",
    "band_height",
)

RING_END: Final = -(2**31)

#: Bits to shift from 1e-7 degrees to cells, whose sides are 0.0033 and 0.026 degrees.
CELL_SHIFT: Final = 15
AREA_CELL_SHIFT: Final = 18
