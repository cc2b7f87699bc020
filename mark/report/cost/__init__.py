"""The cost report: its figures, the advice in it, and what it reads."""
