"""Plans, and what bounds them: caps, schedules and pools."""
