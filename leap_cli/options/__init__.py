"""Groups of options that commands share, each read into plain values."""
