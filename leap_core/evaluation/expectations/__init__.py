"""What an answer is expected to be, and whether it is."""
