"""Checking, cleaning, importing and describing models on disk."""
