"""In-process reverse geocoding."""
