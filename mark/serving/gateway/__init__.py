"""The gateway: takes requests, finds each an agent or Lambda, and counts what came."""
