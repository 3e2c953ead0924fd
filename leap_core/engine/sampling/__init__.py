"""From logits to a token: sampling, drafts, scores."""
