"""The fleet: instances, members, placements, orders, and who may give orders or end what nobody controls."""
