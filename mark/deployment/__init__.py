"""`mark synth`, `diff`, `deploy` and `destroy`: the service as stacks in an AWS account."""
