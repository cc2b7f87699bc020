"""The fleet: its instances and members, the orders that change it, and who may give them."""
