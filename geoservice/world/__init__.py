"""The embedded index of the world: country borders and towns."""
