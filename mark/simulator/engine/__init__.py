"""The data plane in virtual time: requests, instances and Lambda as arrays, run from event to event."""
