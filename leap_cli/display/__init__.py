"""Jobs, downloads and batches as people read them."""
