"""Footprints of the default settings and of the shape `ha`, for tests of bills."""

from mark.config.footprint import footprint_of
from mark.config.settings import Settings

FOOTPRINT = footprint_of(Settings())
HA_FOOTPRINT = footprint_of(Settings.model_validate({"rollout": {"shape": "ha"}}))
