"""Favourite places of each device."""
