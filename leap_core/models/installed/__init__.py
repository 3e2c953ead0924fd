"""The models on this machine's disk."""
