"""Which models share an instance, and what a cap leaves each."""
