"""Nominatim's output formats, one per module: a described place in, members or bytes out."""
