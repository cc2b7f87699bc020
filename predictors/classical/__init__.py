"""Classical rules and regressions: points, seasons, smoothing, autoregression, boosted trees."""
