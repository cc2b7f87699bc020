"""Replays of fleets that nothing scales, as the papers have them."""
