"""Rules that choose the variant of a model for each batch; quality weighed against delay."""
