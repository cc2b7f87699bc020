"""Where the journal is written: a file, or nowhere."""
