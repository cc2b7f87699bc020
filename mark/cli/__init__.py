"""The command `mark`: one module a command, thin: flags and help, then a call."""
