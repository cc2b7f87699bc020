"""The CDK app. Empty until the rollout comes."""
