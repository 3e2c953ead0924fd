"""Where the results of a batch go: a file, a stream, an array of vectors, sound beside them."""
