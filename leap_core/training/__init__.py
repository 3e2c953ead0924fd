"""Training data: conversations in the form in which a model's chat template serves them."""
