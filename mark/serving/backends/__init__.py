"""Model servers behind an agent: adapters of `mark.ports.Backend`."""
