"""A spoken conversation: the microphone's audio is cut into utterances, each is answered aloud, and speaking stops
the answer. Knows no devices: a program brings samples and takes samples away."""
