"""Open Inference Protocol v2 over gRPC: another way into a gateway's one path for requests."""
