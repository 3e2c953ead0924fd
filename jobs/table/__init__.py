"""What is true about every job: its row, the transitions of its state, and the database's schema."""
