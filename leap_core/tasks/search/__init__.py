"""Finding passages in one's own files: an index of chunks, their words and their vectors, and questions to it."""
