"""What is loaded, and who uses it."""
