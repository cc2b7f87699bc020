"""CloudFormation: stacks, their lock, and what who deploys must be allowed."""
