"""Extracts of OpenStreetMap: download and update."""
