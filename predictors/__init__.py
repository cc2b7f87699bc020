"""Every forecaster. `mark` loads them by name, as it loads a user's own."""
