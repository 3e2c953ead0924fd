"""What several tests make: small random files and questions whose answers are known. Nothing of it ships."""
