"""What a gateway tells of itself: counts for the store, metrics for Prometheus, spans of a request."""
