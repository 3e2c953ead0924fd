"""A spoken conversation on the command line: over a microphone and a loudspeaker, or over files."""
