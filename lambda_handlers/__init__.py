"""AWS Lambda handlers, one file a trigger. Empty until the rollout comes."""
