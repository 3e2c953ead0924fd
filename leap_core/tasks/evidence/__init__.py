"""Where the values of an extraction are in its text, computed and never asked of the model, and how sure it was."""
