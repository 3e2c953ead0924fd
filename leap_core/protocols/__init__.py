"""Bodies of other programs' protocols, models elsewhere that speak them, and the host of warm models."""
