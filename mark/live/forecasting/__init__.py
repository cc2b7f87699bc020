"""A model's forecaster in the service: asked in time, trained again, on schedule and when it gets worse."""
