"""Background work of the acting controller; no failure of it stops its ticks."""
