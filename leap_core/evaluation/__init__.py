"""Evaluation: the same cases put to several models, what each answer was expected to be, and what the counts allow."""
