"""The first run in a real account: what was assumed beside what was measured (docs/real-account.md)."""
