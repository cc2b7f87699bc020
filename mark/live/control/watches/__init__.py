"""Watches beside the ticks: quotas, budgets, commitments and pauses, each read again and again."""
