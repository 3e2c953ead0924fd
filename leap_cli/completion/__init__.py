"""What TAB offers, the shells' scripts, and installing them."""
