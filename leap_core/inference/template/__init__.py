"""Messages to a prompt by the model's chat template, and generated tokens back to text, reasoning and calls."""
