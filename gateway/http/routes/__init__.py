"""Routes for people and programs that read, and routes of the page."""
