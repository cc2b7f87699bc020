"""A model of one's own: init, predict, profile."""
