"""A served model: its objective and needs, latencies, profiles, variants and versions."""
