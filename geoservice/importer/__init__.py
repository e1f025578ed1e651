"""The import of OpenStreetMap extracts into a street index."""
