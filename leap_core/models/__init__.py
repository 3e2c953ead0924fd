"""Models on disk and on the hub: references, the catalogue, manifests, GGUF headers, the store, the transfer."""
