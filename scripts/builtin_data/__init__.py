"""The dialogues that leap's built-in model learns from: generated here, nothing downloaded.

Every skill is a module with `make(values) -> Dialogue`; `skills.py` lists them, `mixture.py` joins them into
conversations. A `Values` object draws every name, number and word, and keeps training and evaluation values apart.
"""
