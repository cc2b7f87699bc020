"""What a process sends to a collector by OTLP over HTTP: spans of sampled requests, and its metrics."""
