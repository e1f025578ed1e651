"""Reverse geocoding in process."""
