"""Decisions: typed questions about a state, answered by the model's probabilities of given answers."""
