"""The only room that imports llama_cpp: one model, one context, many sequences."""
