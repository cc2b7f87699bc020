"""Plans by integer programs, and their solver."""
