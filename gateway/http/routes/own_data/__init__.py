"""Routes by which users bring data into the platform, and take it out."""
