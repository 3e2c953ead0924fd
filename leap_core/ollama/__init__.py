"""Bodies of Ollama's protocol, read as leap's requests and written from its responses."""
