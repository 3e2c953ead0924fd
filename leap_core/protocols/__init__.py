"""Bodies of other programs' protocols, remote models that speak them, and the host of warm models."""
