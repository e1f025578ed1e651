"""The geocoder's HTTP server, with Nominatim's paths and answers."""
