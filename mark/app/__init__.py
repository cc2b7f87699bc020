"""The only place where shells meet cores: settings, wiring, command line."""
