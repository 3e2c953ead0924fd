"""What a loaded model sees, hears and speaks: media as segments of a prompt, its voice."""
