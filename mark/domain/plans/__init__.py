"""Bounds of plans: schedules, caps and the budget of a pool; and plans for pods that others run."""
