"""Reading a history, wherever it is stored, and what was erased from it."""
