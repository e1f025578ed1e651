"""Nominatim's output formats, one a module: a described place in, members or bytes out."""
