"""Tries an installed MArk from an empty folder: nothing that it runs may need a clone. `make wheel` does it.

    ENVIRONMENT/bin/python -m scripts.try_wheel base|alone|first-report|rollout

The environment is the one that the wheel is installed in. Nothing here imports MArk, and what is run does not see
the folder of the sources.
"""
