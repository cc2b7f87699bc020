"""The acting controller: who acts, one term of it, and what drives a model's ticks."""
