"""Anthropic's Messages API: requests read as chat requests, replies and errors written."""
