"""A model of one's own, before it is served: init, predict, profile."""
