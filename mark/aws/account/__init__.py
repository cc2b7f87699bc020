"""What the AWS account has beside the service."""
