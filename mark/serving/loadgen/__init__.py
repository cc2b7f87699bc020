"""An open loop of requests, and what became of them."""
