"""The only package that imports llama_cpp: one model, one context, many sequences."""
