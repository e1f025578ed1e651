"""Trips and stays of a device out of its fixes, and the days that they are counted by."""
