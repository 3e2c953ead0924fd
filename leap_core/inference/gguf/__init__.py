"""GGUF headers: reading them, and checking what llama.cpp would not survive."""
