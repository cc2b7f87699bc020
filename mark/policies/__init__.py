"""What a policy is made of: its parts by name, what a team overrides of them, and what it can rent."""
