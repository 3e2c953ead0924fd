"""Documents of any kind as text with places, and their pages as pictures."""
