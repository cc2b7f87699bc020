"""Work that needs no service: replays of a team's own traffic, sweeps, plans, yardsticks, forecasts."""
