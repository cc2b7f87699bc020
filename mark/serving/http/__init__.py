"""HTTP/1.1 for gateway and agent: a server whose memory is bounded over all connections."""
