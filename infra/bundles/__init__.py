"""The Lambda handlers' bundles."""
