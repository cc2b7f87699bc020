"""What runs beside the ticks, and training."""
