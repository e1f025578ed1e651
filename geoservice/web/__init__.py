"""The geocoder over HTTP, with Nominatim's paths and answers."""
