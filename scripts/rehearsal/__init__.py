"""A rollout rehearsed from nothing to nothing: `make rehearse-rollout`."""
