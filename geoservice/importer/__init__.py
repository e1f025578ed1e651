"""From extracts of OpenStreetMap to an index of streets."""
