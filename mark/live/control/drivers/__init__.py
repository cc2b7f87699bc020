"""Drivers of a term: of each model, of the instances that models share, and the loop over them."""
