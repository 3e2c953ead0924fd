"""LFM2.5-Audio's speech output: hidden states of the backbone -> codes -> waveform."""
