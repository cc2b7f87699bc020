"""HetSev: how many instances of each type of GPU, and on which GPU each runs."""
