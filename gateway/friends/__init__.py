"""The friend filter: everything that is shown to friends passes through it."""
