"""The live map: a page without framework or build step, its vendor files and its base map."""
