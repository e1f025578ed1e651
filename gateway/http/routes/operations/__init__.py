"""Routes by which administrators operate the platform."""
