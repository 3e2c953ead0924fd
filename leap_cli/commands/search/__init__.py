"""Commands that make one's own files searchable and search them."""
