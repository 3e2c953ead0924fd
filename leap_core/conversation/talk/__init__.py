"""A spoken conversation: what the microphone hears is cut into utterances, each is answered aloud, and speaking stops
the answer. Knows no devices: a program brings samples and takes samples away."""
