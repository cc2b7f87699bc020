"""The pool of unlike instances that serves most within a budget: Kairos' choice and search, and their planner."""
