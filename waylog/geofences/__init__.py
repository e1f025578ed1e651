"""Geofences: their definitions, as topic `geofence` holds them, and their shapes."""
