"""Showing one answer: while it is made, in a file, several beside each other."""
