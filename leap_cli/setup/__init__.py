"""What ``leap setup`` finds out, offers and asks."""
