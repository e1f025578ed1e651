"""The download and update of OpenStreetMap extracts."""
