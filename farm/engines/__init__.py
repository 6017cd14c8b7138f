"""One engine: its command line, its process tree, its HTTP protocol, and what an answer of it means."""
