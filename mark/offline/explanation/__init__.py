"""`mark explain`: what the controller did and why."""
