"""The data plane: gateway, agent, backends, and the load that is sent to them."""
