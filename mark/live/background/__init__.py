"""What the acting controller does beside its ticks; no failure of it stops them."""
