"""Receipts: where the fixes of a day are, told from offsets."""
