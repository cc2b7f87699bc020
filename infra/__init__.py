"""The rollout: a CDK app that describes the service in an AWS account, as plain CloudFormation."""
