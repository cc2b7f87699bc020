"""What a run cost and kept, as a table and as one self-contained page."""
