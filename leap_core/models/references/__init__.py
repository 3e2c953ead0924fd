"""What a user may call a model, the catalogue of known models, and the files that a reference names."""
