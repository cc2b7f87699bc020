"""A central queue: queries wait in one place, and go to an instance once one is free."""
