"""What a program holds: the contract of a model runner, its conversations and their streams."""
