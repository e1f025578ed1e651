"""One file for each family of APIs: from a request to its answer."""
