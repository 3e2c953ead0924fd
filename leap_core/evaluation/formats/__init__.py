"""The forms in which cases come: files, and the shapes that other programs give their records."""
