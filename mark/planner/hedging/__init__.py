"""Parts of the hedged planner: rates by level of load, shortfalls, misses, small fleets, spot pools."""
