"""Hugging Face's hub: settings, HTTP with retries, its API, and the caches of other programs."""
