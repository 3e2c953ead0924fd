"""Making models: other quantizations of a GGUF, GGUFs of checkpoints, adapters folded in; and what that costs."""
