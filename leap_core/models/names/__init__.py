"""Names of models' files, and names that are safe on a disk."""
