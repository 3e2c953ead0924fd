"""Images and sound as bytes, pixels and samples. Knows neither models nor llama.cpp."""
