"""`waylog geo search`: the search of places by name."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from waylog.cli import EXIT_DONE, EXIT_FAILED, CommandError

_EXAMPLES: Final = """examples:
  waylog geo search "Paris, Texas"
  waylog geo search --index liechtenstein.geo "Herrengasse 9, Vaduz"
  waylog geo search --index alps.geo --country li --limit 3 --json Hauptstrasse
"""


def add_search(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog geo search`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("text", metavar="TEXT", help="an address, a street, a place, a postcode")
    parser.add_argument(
        "--index", type=Path, metavar="INDEX", help="index file (default: the embedded world)"
    )
    parser.add_argument("--limit", type=int, default=10, metavar="N", help="(%(default)s)")
    parser.add_argument(
        "--country", action="append", default=[], metavar="CODE", help="ISO code; may be repeated"
    )
    parser.add_argument(
        "--language", default="", metavar="LIST", help="wanted languages, best first: de,en"
    )
    parser.add_argument("--json", action="store_true", help="Nominatim's jsonv2, one array")


def run_search(arguments: argparse.Namespace) -> int:
    """Print the places found, best first; the exit status is 1 if there are none."""
    from geoservice.index.store import IndexUnavailable
    from geoservice.reverse.geocoder import Geocoder
    from geoservice.search.query import LIMIT_MAX, Query
    from geoservice.search.search import search
    from geoservice.web.formats.described import Details
    from geoservice.web.languages import parse_languages
    from geoservice.web.nominatim import render_list
    from geoservice.web.search_server import NotSearchable, SearchEndpoint

    if not 0 < arguments.limit <= LIMIT_MAX:
        raise CommandError(f"--limit is a number from 1 to {LIMIT_MAX}")
    languages = parse_languages(arguments.language)
    try:
        geocoder = Geocoder.open(arguments.index)
        layers = SearchEndpoint().layers(geocoder)
    except (IndexUnavailable, NotSearchable) as error:
        raise CommandError(str(error)) from None
    places = search(
        layers,
        Query(
            text=arguments.text,
            limit=arguments.limit,
            countries=frozenset(code.lower() for code in arguments.country),
            languages=languages,
        ),
    )
    if arguments.json:
        print(render_list(geocoder, places, "jsonv2", Details(languages=languages)).decode())
    else:
        for place in places:
            print(f"{place.lat or 0:.6f},{place.lon or 0:.6f}  {place.display_name}")
    if not places:
        where = f" in {', '.join(arguments.country)}" if arguments.country else ""
        index = arguments.index or "the embedded world, which has no streets (--index)"
        print(f"nothing is called {arguments.text!r}{where} in {index}", file=sys.stderr)
    return EXIT_DONE if places else EXIT_FAILED
