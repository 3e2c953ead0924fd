"""Model manifests: reading, writing and checking them."""
