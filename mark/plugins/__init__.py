"""Users' own forecasters and models: loaded by entry point, module or file, and asked with a deadline."""
