"""Trying a file in a child process before leap loads it: what llama.cpp makes of it ends that process only.

A right SHA-256 says that a file is whole, not that it is harmless: llama.cpp aborts, or computes without end, over
values that are well-formed GGUF. So a file that is new here is loaded once by a child under limits of time and memory,
and the verdict is kept.
"""
