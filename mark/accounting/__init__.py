"""What was spent and what came: the bill by day, usage, hourly totals, the load history. Pure folds."""
