"""Commands about models: getting them, keeping them, having them warm, serving them to other programs."""
