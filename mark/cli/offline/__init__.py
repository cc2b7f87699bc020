"""Commands that need no service: traces, forecasts, plans, replays and studies."""
