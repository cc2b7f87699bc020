"""The words of a served model: its latencies, profiles, variants and versions."""
