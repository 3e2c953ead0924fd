"""Answers on their way to the client, from the threads that make them."""
