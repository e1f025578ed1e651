"""Sends recorded tracks as the devices would have sent them."""
