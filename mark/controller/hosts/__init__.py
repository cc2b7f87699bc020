"""Instances that several models share: who sits where, and the journal of it."""
