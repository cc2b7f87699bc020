"""What needs no service: replays, sweeps, forecasts over a trace, plans."""
