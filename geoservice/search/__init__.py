"""Forward search: places by name."""
