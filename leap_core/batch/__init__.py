"""Many requests from a JSONL file, answered at once, written as JSONL, and resumable after anything that ends them.

``requests`` reads and checks the lines, ``openai_body`` what OpenAI calls the body of a request, ``run`` answers them,
``journal`` remembers what was answered, ``results`` gives an answer its shape and ``output_file`` its place.
"""
