"""HTTP/1.1 in itself and with odd clients."""
