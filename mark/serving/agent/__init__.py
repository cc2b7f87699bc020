"""The agent on each instance: the Bouncer, a queue, batches for the backend."""
