"""Other geocoders, asked where our index has no answer."""
