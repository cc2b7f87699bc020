"""Studies of SuperServe (NSDI 2025): SlackFit and its rivals on fixed workers that serve every variant."""
