"""Pure: which instances, and why not the others."""
