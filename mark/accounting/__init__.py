"""Accounting: the bill by day, usage, hourly totals, the load history. Pure folds."""
