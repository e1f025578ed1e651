"""Routes by which people and programs read, and routes of the page."""
