"""A central queue at a gateway, and the gateway's share of the instances."""
