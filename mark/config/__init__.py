"""Settings as `mark.yaml` holds them: one frozen, validated tree, and nothing else."""
