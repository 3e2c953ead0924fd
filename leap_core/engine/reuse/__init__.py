"""What one prompt leaves for the next: states of sequences, snapshots, encoded media."""
