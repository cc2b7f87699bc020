"""What answers batches behind an agent: adapters of `mark.ports.Backend`."""
