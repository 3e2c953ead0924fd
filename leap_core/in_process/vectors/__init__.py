"""Texts to vectors in this process: embeddings and hidden states."""
