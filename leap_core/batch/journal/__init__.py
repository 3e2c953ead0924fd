"""What a batch has done so far: the result of each line, kept in a file beside the output."""
