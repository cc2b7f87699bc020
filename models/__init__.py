"""Models to serve, each with its card and profile. Empty until the live service comes."""
