"""What leap doctor checks."""
