"""The footprint of the default settings, for tests of bills."""

from mark.config.footprint import footprint_of
from mark.config.settings import Settings

FOOTPRINT = footprint_of(Settings())
